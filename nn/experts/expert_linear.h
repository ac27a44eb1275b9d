#pragma once
// The linear layers of all experts of one kind (gate and up, or down) as one layer with one weight.

#include <memory>
#include <string>
#include <vector>

#include "nn/experts/expert_kernel.h"
#include "nn/module.h"

namespace quench::nn {

class ExpertLinear final : public Module {
 public:
  // One part of an expert's rows: the last component of its Hugging Face name and its rows.
  struct Part {
    std::string name;
    std::int64_t rows;
  };
  // The weight is [experts * out, in]: the rows of expert 0, in the order of `parts`, then those of expert 1, ...
  // `hf_path`: the experts' path within the decoder layer, "mlp.experts".
  ExpertLinear(std::int64_t experts, std::int64_t in_features, std::string hf_path, std::vector<Part> parts,
               const ParameterOptions& options, float init_std);

  // x [R,in] in the rows of its experts -> [R,out].
  [[nodiscard]] Variable forward(const Variable& x, const autograd::TokenPermutation& rows) const {
    return kernel_->apply(x, weight_, rows);
  }
  // The same of tokens x [N,in], copied to the rows of their experts.
  [[nodiscard]] Variable forward_tokens(const Variable& x, const autograd::TokenPermutation& rows) const {
    return kernel_->apply_to_tokens(x, weight_, rows);
  }
  // x [R,in] in the rows of its experts -> [N,out], each token the sum over its rows.
  [[nodiscard]] Variable forward_and_sum(const Variable& x, const autograd::TokenPermutation& rows) const {
    return kernel_->apply_and_sum(x, weight_, rows);
  }
  // Of tokens, and the backward pass can make the result again from what is saved of x
  // (Linear::forward_with_recompute).
  [[nodiscard]] Variable forward_tokens_with_recompute(const Variable& x, const autograd::TokenPermutation& rows) const;

  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const { return kernel_->input_quant_request(); }

  void set_kernel(std::shared_ptr<const ExpertKernel> kernel);
  [[nodiscard]] const ExpertKernel& kernel() const noexcept { return *kernel_; }
  [[nodiscard]] std::shared_ptr<const ExpertKernel> shared_kernel() const noexcept { return kernel_; }
  // in and out of one expert.
  [[nodiscard]] LinearInfo info(std::string name) const;
  [[nodiscard]] std::int64_t experts() const noexcept { return experts_; }
  [[nodiscard]] Parameter& weight() noexcept { return weight_; }
  [[nodiscard]] const Parameter& weight() const noexcept { return weight_; }
  [[nodiscard]] const std::string& hf_path() const noexcept { return hf_path_; }
  [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }

 protected:
  void name_pieces(const std::string& prefix) override;

 private:
  void name_kernel_pieces(const std::string& prefix) const;

  std::int64_t experts_;
  std::string hf_path_;
  std::vector<Part> parts_;
  Parameter weight_;
  std::shared_ptr<const ExpertKernel> kernel_ = high_precision_expert_kernel();
};

}  // namespace quench::nn
