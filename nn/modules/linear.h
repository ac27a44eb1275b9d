#pragma once
// Linear layer: weight [out,in], optional bias [out]; may fuse Hugging Face layers along `out`.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/modules/linear_kernel.h"
#include "nn/modules/module.h"

namespace quench::nn {

// Options of a linear layer, next to its two dimensions.
struct LinearOptions {
  bool bias = false;
  float init_std = 0.02f;  // standard deviation of the weight's initial values; those of the bias are 0
  ParameterOptions parameters{};
  std::vector<LinearPart> parts{};  // all rows, in order, by the last component of their names; empty: one part
  // Axis of the weight that tensor-parallel ranks split; the two dimensions, and parts, are then those of a slice.
  TensorSplit split = TensorSplit::none;
};

// Parts of the first `rows` rows of a named weight, for LinearInfo.
[[nodiscard]] std::vector<LinearPart> named_parts(const Parameter& weight, std::int64_t rows);

class Linear final : public Module {
 public:
  // Throws invalid_argument for parts of another number of rows.
  Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options = {});

  [[nodiscard]] Variable forward(const Variable& x) const { return kernel_->apply(x, weight_, bias()); }
  // forward() whose result can be recomputed in the backward pass with one more GEMM (autograd::RecomputeHandle); not
  // saved under selective recompute. The layer must outlive the backward pass.
  [[nodiscard]] Variable forward_with_recompute(const Variable& x) const;
  // forward(), and its gated activation if the kernel fuses it; else `gated` is undefined.
  [[nodiscard]] LinearOutput forward_gated(const Variable& x, GatedActivation activation) const;
  // The call in one pass (LinearKernel::run); absent if the kernel does not support it.
  [[nodiscard]] std::optional<LinearOutput> run_fused(const LinearCall& call) const;
  // For the producer of x, whose value may have other readers.
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const {
    autograd::QuantOutputRequest request = sole_input_quant_request();
    request.value_needed = true;
    return request;
  }
  // For the producer of an x that forward() of this layer alone reads.
  [[nodiscard]] autograd::QuantOutputRequest sole_input_quant_request() const {
    return kernel_->input_quant_request(weight_);
  }

  // Also sets whether the optimizer maintains the weight's amax.
  void set_kernel(std::shared_ptr<const LinearKernel> kernel);
  // For passes between two exchanges; parameters and the weight's amax stay those of set_kernel().
  void exchange_kernel(std::shared_ptr<const LinearKernel>& kernel) noexcept { kernel_.swap(kernel); }
  [[nodiscard]] const LinearKernel& kernel() const noexcept { return *kernel_; }
  [[nodiscard]] std::shared_ptr<const LinearKernel> shared_kernel() const noexcept { return kernel_; }
  [[nodiscard]] LinearInfo info(std::string name) const;
  [[nodiscard]] Parameter& weight() noexcept { return weight_; }
  [[nodiscard]] const Parameter& weight() const noexcept { return weight_; }
  // The weight [out,in] as differentiable functions take it: lm_head_loss(hidden, head.matrix(), labels, scale).
  [[nodiscard]] Weight matrix() const { return weight_.weight(); }
  [[nodiscard]] const std::vector<LinearPart>& parts() const noexcept { return parts_; }

 protected:
  void name_pieces(const std::string& prefix) override;

 private:
  [[nodiscard]] Weight bias() const { return has_bias_ ? bias_.weight() : Weight(); }
  void name_kernel_pieces(const std::string& prefix) const;

  ParameterOptions options_;
  Parameter weight_;
  Parameter bias_;
  bool has_bias_;
  std::vector<LinearPart> parts_;
  std::shared_ptr<const LinearKernel> kernel_ = high_precision_linear_kernel();
};

}  // namespace quench::nn
