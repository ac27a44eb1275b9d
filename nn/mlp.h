#pragma once
// The SwiGLU feed-forward block with fused gate and up projections.

#include "nn/linear.h"
#include "nn/model_config.h"

namespace quench::nn {

class Mlp final : public Module {
 public:
  Mlp(const ModelConfig& config, const ParameterOptions& options);
  // x [N,H] (normalised) -> [N,H]. `recompute_product`: the input of SwiGLU is not saved but made again from x, under
  // selective recompute.
  [[nodiscard]] Variable forward(const Variable& x, bool recompute_product = false) const;
  [[nodiscard]] autograd::QuantRequest input_request() const { return gate_up_proj_.input_request(); }

 private:
  Linear gate_up_proj_;
  Linear down_proj_;
};

}  // namespace quench::nn
