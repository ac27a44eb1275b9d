#pragma once
// How a linear layer is computed. nn::Linear asks; precision recipes answer (recipes/).

#include <memory>
#include <string>

#include "autograd/quant_request.h"
#include "autograd/tape.h"
#include "core/ops/lm_head_loss.h"
#include "nn/parameter.h"

namespace quench::nn {

using autograd::Variable;

// What a recipe may look at when it chooses a kernel for a layer.
struct LinearInfo {
  std::string name;  // module path, "model.layers.0.mlp.down_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool has_bias = false;
  Device device;
};

class LinearKernel {
 public:
  virtual ~LinearKernel() = default;
  // y [N,out] = x [N,in] * weight [out,in]^T (+ bias [out]), differentiable in all three.
  [[nodiscard]] virtual Variable apply(const Variable& x, const Parameter& weight, const Weight& bias) const = 0;
  // The value that an apply() to the same x recorded, once more for its backward pass: the same bits, nothing recorded
  // and nothing measured. This one suits kernels whose product does not depend on whether it is recorded.
  [[nodiscard]] virtual Tensor apply_again(const Variable& x, const Parameter& weight, const Weight& bias) const;
  // What the function that makes x may write beside it.
  [[nodiscard]] virtual autograd::QuantRequest input_request(const Parameter&) const { return {}; }
  // Whether the optimizer should keep up Parameter::amax of the layer's weight.
  [[nodiscard]] virtual bool uses_weight_amax() const { return false; }
  // The layer's products as the head of a language model, for one loss; null: plain gemms.
  [[nodiscard]] virtual std::unique_ptr<HeadProducts> head_products(const Parameter&) const { return nullptr; }
  // One word for the conversion report: "bf16", "float8_rowwise", ...
  [[nodiscard]] virtual std::string_view name() const = 0;
};

// Products in the dtype of the operands: what every layer uses until a recipe says otherwise.
[[nodiscard]] std::shared_ptr<const LinearKernel> high_precision_linear_kernel();

}  // namespace quench::nn
