#pragma once
// A linear layer: weight [out,in], optional bias [out]; several Hugging Face layers may be fused along `out`.

#include <memory>
#include <string>
#include <vector>

#include "nn/linear_kernel.h"
#include "nn/module.h"

namespace quench::nn {

class Linear final : public Module {
 public:
  // One part of a fused layer: the last component of its Hugging Face name and its rows.
  struct Part {
    std::string name;
    std::int64_t rows;
  };

  Linear(std::int64_t in_features, std::int64_t out_features, bool bias, const ParameterOptions& options,
         float init_std, std::vector<Part> parts = {});

  [[nodiscard]] Variable forward(const Variable& x) const {
    return kernel_->apply(x, weight_, has_bias_ ? bias_.weight() : Weight());
  }
  // The same, and the backward pass can make the result again from what is saved of x, for another product
  // (autograd::RecomputeHandle): under selective recompute it is not saved then. The layer must outlive the backward
  // pass.
  [[nodiscard]] Variable forward_with_recompute(const Variable& x) const;
  // LinearKernel::apply_gated().
  [[nodiscard]] Variable forward_gated(const Variable& x, Tensor& gated) const {
    return kernel_->apply_gated(x, weight_, has_bias_ ? bias_.weight() : Weight(), gated);
  }
  // LinearKernel::gated_product().
  [[nodiscard]] Tensor gated_product(const Tensor& x) const {
    return kernel_->gated_product(x, weight_, has_bias_ ? bias_.weight() : Weight());
  }
  // LinearKernel::normed_product().
  [[nodiscard]] Tensor normed_product(const Tensor& x, const AddedNorm& norm, bool gated) const {
    return kernel_->normed_product(x, norm, gated, weight_, has_bias_ ? bias_.weight() : Weight());
  }
  // For the function that makes x.
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const {
    return kernel_->input_quant_request(weight_);
  }

  // Also says whether the optimizer is to keep up the weight's largest magnitude, from the next step on.
  void set_kernel(std::shared_ptr<const LinearKernel> kernel);
  [[nodiscard]] const LinearKernel& kernel() const noexcept { return *kernel_; }
  // For wrapper kernels.
  [[nodiscard]] std::shared_ptr<const LinearKernel> shared_kernel() const noexcept { return kernel_; }
  [[nodiscard]] LinearInfo info(std::string name) const;
  [[nodiscard]] Parameter& weight() noexcept { return weight_; }
  [[nodiscard]] const Parameter& weight() const noexcept { return weight_; }
  [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }

 protected:
  void name_pieces(const std::string& prefix) override;

 private:
  void name_kernel_pieces(const std::string& prefix) const;

  ParameterOptions options_;  // of parameters of the kernel's
  Parameter weight_;
  Parameter bias_;
  bool has_bias_;
  std::vector<Part> parts_;
  std::shared_ptr<const LinearKernel> kernel_ = high_precision_linear_kernel();
};

}  // namespace quench::nn
