#include "nn/modules/mlp.h"

#include "autograd/swiglu.h"
#include "nn/modules/initialize.h"

namespace quench::nn {

Mlp::Mlp(const ModelConfig& config, const BlockSpec& block, std::int64_t width, const ParameterOptions& options)
    : Mlp(block, width / options.tensor.count, config.hidden_size, config.initializer_range, residual_init_std(config),
          options) {}

Mlp::Mlp(const BlockSpec& block, std::int64_t own_width, std::int64_t hidden_size, float init_std,
         float residual_init_std, const ParameterOptions& options)
    : layer_(block.layer),
      activation_(block.feed_forward.activation),
      gate_up_proj_(hidden_size, 2 * own_width,
                    {.bias = block.feed_forward.bias,
                     .init_std = init_std,
                     .parameters = options,
                     .parts = block.feed_forward.fused_storage
                                  ? std::vector<LinearPart>()
                                  : std::vector<LinearPart>{{"gate_proj", own_width}, {"up_proj", own_width}},
                     .split = TensorSplit::rows}),
      down_proj_(own_width, hidden_size,
                 {.bias = block.feed_forward.bias,
                  .init_std = residual_init_std,
                  .parameters = options,
                  .split = TensorSplit::columns}) {
  add_module("gate_up_proj", gate_up_proj_);
  add_module("down_proj", down_proj_);
}

Variable Mlp::forward(const Variable& x, const ForwardContext& context) const {
  // Decode of one token: saves a kernel launch.
  if (context.caches_keys() && x.shape()[0] == 1 && autograd::Tape::current() == nullptr)
    if (const auto fused = gate_up_proj_.run_fused({.x = x,
                                                    .epilogue = LinearEpilogue::gated_activation,
                                                    .mode = LinearMode::inference,
                                                    .activation = activation_}))
      return down_proj_.forward(Variable(fused->gated));
  const bool recompute_gate_up = context.activations.of(layer_) == autograd::SavePolicy::recompute;
  Variable inner;
  {
    // If recomputed, gate_up is freed before the down GEMM.
    const autograd::QuantOutputRequest wanted = down_proj_.sole_input_quant_request();
    const LinearOutput gate_up = recompute_gate_up ? LinearOutput{gate_up_proj_.forward_with_recompute(x)}
                                 : wanted.wanted() ? LinearOutput{gate_up_proj_.forward(x)}
                                                   : gate_up_proj_.forward_gated(x, activation_);
    inner = autograd::swiglu(gate_up.y, wanted, gate_up.gated, activation_);
  }
  return down_proj_.forward(inner);
}

Variable Mlp::forward_weighted(const Variable& x, const Variable& weights, const autograd::TokenPermutation& rows,
                               const ForwardContext& context) const {
  QUENCH_CHECK(activation_ == GatedActivation::silu, "Mlp: weighted rows have SwiGLU alone");
  Variable inner;
  {
    const bool recompute_gate_up = context.activations.of(layer_) == autograd::SavePolicy::recompute;
    const Variable gate_up = recompute_gate_up ? gate_up_proj_.forward_with_recompute(x) : gate_up_proj_.forward(x);
    // Weights before the down projection, which is linear and without bias: its output is not needed for their
    // gradient.
    inner = autograd::expert_swiglu(gate_up, weights, rows);
  }
  return down_proj_.forward(inner);
}

Variable Mlp::forward_unnormed(const Tensor& x, const AddedNorm& norm, const ForwardContext&) const {
  const auto fused = gate_up_proj_.run_fused({.x = Variable(x),
                                              .norm = &norm,
                                              .epilogue = LinearEpilogue::gated_activation,
                                              .mode = LinearMode::inference,
                                              .activation = activation_});
  return fused ? down_proj_.forward(Variable(fused->gated)) : Variable();
}

}  // namespace quench::nn
