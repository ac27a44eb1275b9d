#pragma once
// The quantized forms of one layer's weight, made once for each version of it, or brought as codes by its source.

#include "nn/linear_kernel.h"
#include "recipes/float8/gemms.h"
#include "recipes/health.h"

namespace quench::recipes {

// What the optimizer keeps up of a parameter's value, where it is of this version.
[[nodiscard]] QuantOutputs known_maxima(const nn::Parameter& parameter);

// The codes that a scheme's products read of a weight.
[[nodiscard]] nn::WeightFormats preferred_weight_formats(const Float8Uses& uses);

class Float8Weight {
 public:
  // With `keep`, codes are kept from the first use until the weight changes: two bytes an element, and no cast in the
  // further micro-batches of a step. Otherwise they live as long as the product that needs them.
  Float8Weight(const Float8Uses& uses, bool keep) : uses_(uses), keep_(keep) {}

  // Codes for a product that is queued while this object lives.
  struct Operand {
    QuantTensor codes;
    autograd::Weight::AcquiredQuantized brought;  // where they came as codes
  };
  // [N,K] for x W^T, with the padding of `products`. With `rows_follow` the scales for columnwise() are made on the
  // way: before a backward pass. What quantization loses goes to `health`.
  [[nodiscard]] Operand rowwise(const nn::Parameter& parameter, const Float8Gemms& products, bool rows_follow,
                                const LayerHealth& health);
  // [K,N] for dy W.
  [[nodiscard]] QuantTensor columnwise(const nn::Parameter& parameter, const Float8Gemms& products);
  // The same from the parameter's value in any shape, as the products read it: [E,N,K] for experts.
  [[nodiscard]] QuantTensor rowwise(const nn::Parameter& parameter, const Tensor& value, bool rows_follow);
  [[nodiscard]] QuantTensor columnwise(const nn::Parameter& parameter, const Tensor& value);

 private:
  void refresh(const nn::Parameter& parameter, const Tensor& value, bool columns_wanted, bool rows_wanted);

  Float8Uses uses_;
  bool keep_;
  bool valid_ = false;
  std::uint64_t version_ = 0;
  const void* address_ = nullptr;  // of the value that the scales belong to
  Float8Matrix matrix_;
};

}  // namespace quench::recipes
