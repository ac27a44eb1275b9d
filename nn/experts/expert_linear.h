#pragma once
// One projection of all experts, with one weight.

#include <memory>
#include <string>
#include <vector>

#include "nn/experts/expert_kernel.h"
#include "nn/modules/linear.h"

namespace quench::nn {

class ExpertLinear final : public Module {
 public:
  // Weight [experts * out, in]: rows of expert 0 in the order of the parts, at least one, then of expert 1, ...
  // `hf_path`: "mlp.experts". Bias [experts * out] in the order of the weight's rows.
  ExpertLinear(std::int64_t experts, std::int64_t in_features, std::string hf_path, LinearOptions options);

  // x [R,in] -> [R,out].
  [[nodiscard]] Variable forward(const Variable& x, const autograd::TokenPermutation& rows) const {
    return with_bias(kernel_->apply(x, weight_, rows), rows);
  }
  // x [N,in] in token order.
  [[nodiscard]] Variable forward_tokens(const Variable& x, const autograd::TokenPermutation& rows) const {
    return with_bias(kernel_->apply_to_tokens(x, weight_, rows), rows);
  }
  // x [R,in] -> [N,out], unpermuted. Inputs include the router weights f32 [N,k], by which the bias is multiplied.
  [[nodiscard]] Variable forward_and_sum(const Variable& x, const Variable& weights,
                                         const autograd::TokenPermutation& rows) const;
  // Recomputable in the backward pass (Linear::forward_with_recompute).
  [[nodiscard]] Variable forward_tokens_with_recompute(const Variable& x, const autograd::TokenPermutation& rows) const;

  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const { return kernel_->input_quant_request(); }

  void set_kernel(std::shared_ptr<const ExpertKernel> kernel);
  // As Linear::exchange_kernel().
  void exchange_kernel(std::shared_ptr<const ExpertKernel>& kernel) noexcept { kernel_.swap(kernel); }
  [[nodiscard]] const ExpertKernel& kernel() const noexcept { return *kernel_; }
  [[nodiscard]] std::shared_ptr<const ExpertKernel> shared_kernel() const noexcept { return kernel_; }
  // Without the bias, which kernels do not see.
  [[nodiscard]] LinearInfo info(std::string name) const;
  [[nodiscard]] std::int64_t experts() const noexcept { return experts_; }
  [[nodiscard]] Parameter& weight() noexcept { return weight_; }
  [[nodiscard]] const Parameter& weight() const noexcept { return weight_; }
  [[nodiscard]] bool has_bias() const noexcept { return has_bias_; }
  [[nodiscard]] const std::string& hf_path() const noexcept { return hf_path_; }
  [[nodiscard]] const std::vector<LinearPart>& parts() const noexcept { return parts_; }

 protected:
  void name_pieces(const std::string& prefix) override;

 private:
  void name_kernel_pieces(const std::string& prefix) const;
  [[nodiscard]] Variable with_bias(const Variable& y, const autograd::TokenPermutation& rows) const {
    return has_bias_ ? autograd::add_expert_bias(y, bias_.weight(), rows) : y;
  }

  std::int64_t experts_;
  std::string hf_path_;
  std::vector<LinearPart> parts_;
  Parameter weight_;
  bool has_bias_;
  Parameter bias_;
  std::shared_ptr<const ExpertKernel> kernel_ = high_precision_expert_kernel();
};

}  // namespace quench::nn
