#pragma once
// Kernel interface of expert layers.

#include <memory>
#include <string_view>
#include <vector>

#include "autograd/functions_moe.h"
#include "nn/modules/linear_kernel.h"

namespace quench::nn {

class ExpertKernel {
 public:
  virtual ~ExpertKernel() = default;
  // Grouped GEMM: y [R,out] = x [R,in] * (the expert's part of weight [E*out,in])^T, differentiable in both.
  [[nodiscard]] virtual Variable apply(const Variable& x, const Parameter& weight,
                                       const autograd::TokenPermutation& rows) const = 0;
  // The same for tokens x [N,in]; kernels may fuse the permutation.
  [[nodiscard]] virtual Variable apply_to_tokens(const Variable& x, const Parameter& weight,
                                                 const autograd::TokenPermutation& rows) const {
    return apply(autograd::permute_tokens(x, rows), weight, rows);
  }
  // apply(), then unpermuted: [N,out]; kernels may fuse it.
  [[nodiscard]] virtual Variable apply_and_sum(const Variable& x, const Parameter& weight,
                                               const autograd::TokenPermutation& rows) const {
    return autograd::unpermute_tokens(apply(x, weight, rows), rows);
  }
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request() const { return {}; }
  // Required multiple of an expert's row count; a power of two.
  [[nodiscard]] virtual std::int64_t alignment() const { return 1; }
  // Trained parameters, as LinearKernel::parameters(); pieces are named within the decoder layer:
  // "mlp.experts.0.gate_proj.lora_A.weight".
  [[nodiscard]] virtual std::vector<KernelParameter> parameters() const { return {}; }
  [[nodiscard]] virtual std::string_view name() const = 0;
};

[[nodiscard]] std::shared_ptr<const ExpertKernel> high_precision_expert_kernel();

}  // namespace quench::nn
