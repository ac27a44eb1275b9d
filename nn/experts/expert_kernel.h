#pragma once
// How the linear layers of experts are computed. nn::ExpertLinear asks; precision recipes answer (recipes/).

#include <memory>
#include <string_view>
#include <vector>

#include "autograd/functions_moe.h"
#include "nn/linear_kernel.h"

namespace quench::nn {

class ExpertKernel {
 public:
  virtual ~ExpertKernel() = default;
  // y [R,out] of x [R,in]: each row times the weight [E*out,in] of its expert, transposed; differentiable in both.
  [[nodiscard]] virtual Variable apply(const Variable& x, const Parameter& weight,
                                       const autograd::TokenPermutation& rows) const = 0;
  // The same of tokens x [N,in], a copy of each in every row of its experts (autograd::permute_tokens): kernels that
  // read the tokens where they are need no copies.
  [[nodiscard]] virtual Variable apply_to_tokens(const Variable& x, const Parameter& weight,
                                                 const autograd::TokenPermutation& rows) const {
    return apply(autograd::permute_tokens(x, rows), weight, rows);
  }
  // The sum over each token's rows of the same, [N,out] (autograd::unpermute_tokens): kernels that read the gradient of
  // tokens where they are need no copies of it.
  [[nodiscard]] virtual Variable apply_and_sum(const Variable& x, const Parameter& weight,
                                               const autograd::TokenPermutation& rows) const {
    return autograd::unpermute_tokens(apply(x, weight, rows), rows);
  }
  // What apply() would like to find of x, or in its place.
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request() const { return {}; }
  // What the number of rows of an expert must be a multiple of; a power of two.
  [[nodiscard]] virtual std::int64_t alignment() const { return 1; }
  // What the kernel trains beside the layer's weight, as LinearKernel::parameters(); pieces have names within the
  // decoder layer: "mlp.experts.0.gate_proj.lora_A.weight".
  [[nodiscard]] virtual std::vector<KernelParameter> parameters() const { return {}; }
  // One word for the conversion report.
  [[nodiscard]] virtual std::string_view name() const = 0;
};

// Products in the dtype of the operands.
[[nodiscard]] std::shared_ptr<const ExpertKernel> high_precision_expert_kernel();

}  // namespace quench::nn
