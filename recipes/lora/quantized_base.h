#pragma once
// Quantized frozen weights under adapters.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor/packed_matrix.h"
#include "nn/modules/module.h"
#include "recipes/lora/base_form.h"

namespace quench::recipes {

// Quantized weights of a frozen model (QLoRA, Dettmers et al., 2023), dequantized on use to the original dtype, or cast
// on use to e4m3 for float8 GEMMs: nf4 from its f32 values, the others from values of that dtype, under scales that are
// made on the first use.
// Quantized values and scales are frozen parameters with one row per weight row, sharded in place of the weight, whose
// storage is freed. Must outlive the sharded model.
class QuantizedBase {
 public:
  // All-gathers a sharded parameter, with equal results on all ranks. Absent: not sharded.
  using Gather = std::function<Tensor(const nn::Parameter&)>;

  // Quantizes the frozen decoder weights, except those passed to keep(). No-op for BaseForm::dense and
  // BaseForm::stored. Throws unsupported naming a weight that the format cannot hold, nonfinite for non-finite values.
  void store(nn::Module& root, BaseForm form, const Gather& gather = {});
  // One of quantizable_weights().
  void store(nn::Parameter& weight, BaseForm form, const Gather& gather = {});
  // Uses these quantized values, of all rows; `dtype`: dequantized.
  void keep(nn::Parameter& weight, const PackedMatrix& codes, DType dtype);

  [[nodiscard]] bool holds(const nn::Parameter& weight) const { return matrices_.contains(&weight); }
  // "nf4", "float8", or e.g. "i4 g32"; empty for a weight not stored here.
  [[nodiscard]] std::string form_of(const nn::Parameter& weight) const;
  // Local rows of the parts; empty for a weight not stored here.
  [[nodiscard]] std::vector<nn::Parameter*> parts(const nn::Parameter& weight) const;
  [[nodiscard]] Tensor values(const nn::Parameter& weight, const Gather& gather) const;
  // Memory traffic of one use, read plus write: dequantized, or in float8. 0 for a weight not stored here.
  [[nodiscard]] std::int64_t bytes_of_use(const nn::Parameter& weight, bool float8) const;

 private:
  struct Matrix;
  class Values;
  void put(nn::Parameter& weight, DType dtype, std::shared_ptr<Matrix> matrix);

  std::map<const nn::Parameter*, std::shared_ptr<Matrix>> matrices_;
};

// Decoder weights of linear layers, in module order.
[[nodiscard]] std::vector<nn::Parameter*> quantizable_weights(nn::Module& root);

// Unsharded models only.
void make_dense(nn::Module& root);

}  // namespace quench::recipes
