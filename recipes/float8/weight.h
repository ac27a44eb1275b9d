#pragma once
// Quantized weight of a float8 layer, for one GEMM or until the weight changes.

#include "nn/modules/linear_kernel.h"
#include "recipes/float8/gemms.h"
#include "recipes/health.h"

namespace quench::recipes {

// The optimizer's amax, if valid for this version.
[[nodiscard]] QuantOutputs known_amax(const nn::Parameter& parameter);

[[nodiscard]] nn::WeightFormats preferred_weight_formats(const Float8Uses& uses);

class Float8Weight {
 public:
  // `keep`: quantized values live until the weight changes (two bytes per element), otherwise for one GEMM.
  Float8Weight(const Float8Uses& uses, bool keep) : uses_(uses), keep_(keep) {}

  // Valid for GEMMs queued during the object's lifetime.
  struct Operand {
    QuantTensor codes;
    autograd::Weight::AcquiredQuantized acquired;
  };
  // [N,K] for x W^T, padded. `columnwise_follows`: also makes the scales for columnwise(). Quantization error is
  // recorded in `health`.
  [[nodiscard]] Operand rowwise(const nn::Parameter& parameter, const Float8Gemms& gemms, bool columnwise_follows,
                                const LayerHealth& health);
  // [K,N] for dy W.
  [[nodiscard]] Operand columnwise(const nn::Parameter& parameter, const Float8Gemms& gemms);
  // [E,N,K] for experts.
  [[nodiscard]] QuantTensor rowwise(const nn::Parameter& parameter, const Tensor& value, bool columnwise_follows);
  [[nodiscard]] QuantTensor columnwise(const nn::Parameter& parameter, const Tensor& value);

 private:
  struct Kept {
    QuantTensor codes;
    std::uint64_t version = 0;
  };
  // Codes that the weight's storage has or makes; undefined: none.
  [[nodiscard]] Operand of_storage(const nn::Parameter& parameter, const Float8Gemms& gemms,
                                   const std::optional<autograd::WeightFormat>& format, Orientation wanted,
                                   Kept& kept) const;
  void refresh(const nn::Parameter& parameter, const Tensor& value, bool rowwise_wanted, bool columnwise_wanted);

  Float8Uses uses_;
  bool keep_;
  bool valid_ = false;
  std::uint64_t version_ = 0;
  const void* address_ = nullptr;
  Float8Matrix matrix_;
  Kept kept_rowwise_, kept_columnwise_;  // values of the storage's codes
};

}  // namespace quench::recipes
