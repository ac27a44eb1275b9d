#pragma once

#include "nn/linear.h"
#include "nn/sublayer.h"

namespace quench::nn {

class Mlp final : public SubLayer {
 public:
  // `width`: intermediate features; 0: config.intermediate_size.
  Mlp(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options, std::int64_t width = 0);
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
