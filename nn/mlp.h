#pragma once
// The SwiGLU feed-forward block with fused gate and up projections.

#include "nn/linear.h"
#include "nn/sublayer.h"

namespace quench::nn {

class Mlp final : public SubLayer {
 public:
  // `width`: intermediate features; 0: config.intermediate_size.
  Mlp(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options, std::int64_t width = 0);
  // Where the context's plan says so, the input of SwiGLU is not saved but made again from x, under selective
  // recompute.
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  [[nodiscard]] Variable forward_unnormed(const Tensor& x, const AddedNorm& norm,
                                          const ForwardContext& context) const override;
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override {
    return gate_up_proj_.input_quant_request();
  }

 private:
  std::int64_t layer_;
  Linear gate_up_proj_;
  Linear down_proj_;
};

}  // namespace quench::nn
