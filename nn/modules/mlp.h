#pragma once
// Gated feed-forward part (SwiGLU, GeGLU) of a dense decoder layer or a shared expert.

#include "autograd/functions_moe.h"
#include "nn/modules/linear.h"
#include "nn/modules/sublayer.h"

namespace quench::nn {

class Mlp final : public SubLayer {
 public:
  // A dense layer's feed-forward part.
  Mlp(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
      : Mlp(config, block, block.feed_forward.intermediate_size, options) {}
  // `width`: intermediate features.
  Mlp(const ModelConfig& config, const BlockSpec& block, std::int64_t width, const ParameterOptions& options);
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  // forward() with SwiGLU, rows times `weights` f32 [N,1]. `rows`: those of one expert for N tokens, in their order.
  [[nodiscard]] Variable forward_weighted(const Variable& x, const Variable& weights,
                                          const autograd::TokenPermutation& rows, const ForwardContext& context) const;
  [[nodiscard]] Variable forward_unnormed(const Tensor& x, const AddedNorm& norm,
                                          const ForwardContext& context) const override;
  [[nodiscard]] bool is_rowwise() const override { return true; }
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override {
    return gate_up_proj_.sole_input_quant_request();
  }

 private:
  // `own_width`: features of this rank of the tensor axis.
  Mlp(const BlockSpec& block, std::int64_t own_width, std::int64_t hidden_size, float init_std, float residual_init_std,
      const ParameterOptions& options);
  std::int64_t layer_;
  GatedActivation activation_;
  Linear gate_up_proj_;
  Linear down_proj_;
};

}  // namespace quench::nn
