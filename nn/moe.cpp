#include "nn/moe.h"

#include <cmath>

#include "core/ops/experts/grouped_gemm.h"
#include "nn/expert_load.h"
#include "nn/mlp.h"

namespace quench::nn {

MoE::Router::Router(const ModelConfig& config, const ParameterOptions& options)
    : hf_path(config.experts.names.router),
      weight(make_parameter({config.experts.count, config.hidden_size}, options, Initializer::normal,
                            config.initializer_range)) {
  add_parameter("weight", weight);
}

void MoE::Router::name_pieces(const std::string& prefix) {
  // "model.layers.0.mlp.gate." -> "model.layers.0."
  std::string layer = prefix;
  for (int level = 0; level < 2; ++level) layer.resize(layer.rfind('.', layer.size() - 2) + 1);
  weight.pieces = {{fmt::format("{}{}.weight", layer, hf_path), 0, weight.global_shape[0]}};
}

MoE::Experts::Experts(const ModelConfig& config, const ParameterOptions& options)
    : gate_up_proj(config.experts.count, config.hidden_size, std::string(config.experts.names.experts),
                   {{std::string(config.experts.names.gate), config.experts.intermediate_size},
                    {std::string(config.experts.names.up), config.experts.intermediate_size}},
                   options, config.initializer_range),
      down_proj(config.experts.count, config.experts.intermediate_size, std::string(config.experts.names.experts),
                {{std::string(config.experts.names.down), config.hidden_size}}, options,
                config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers))) {
  add_module("gate_up_proj", gate_up_proj);
  add_module("down_proj", down_proj);
}

MoE::MoE(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options)
    : layer_(layer),
      per_token_(config.experts.per_token),
      rule_{.normalize = config.experts.normalize},
      gate_(config, options),
      experts_(config, options) {
  add_module("gate", gate_);
  add_module("experts", experts_);
}

Variable MoE::forward(const Variable& x, const ForwardContext& context) const {
  const Variable logits = autograd::router_logits(x, gate_.weight.weight());
  const autograd::Routing routing = autograd::route(
      logits, {.rule = rule_,
               .choices = per_token_,
               .alignment = std::max({experts_.gate_up_proj.kernel().alignment(),
                                      experts_.down_proj.kernel().alignment(), group_alignment(x.value().device())}),
               .bias = {},
               .terms = context.router_terms});
  const autograd::ExpertRows& rows = routing.rows;
  if (context.expert_load != nullptr)
    context.expert_load->add(layer_, rows.counts, context.router_terms.wanted() ? logits.value() : Tensor());
  const bool recompute_product = context.activations.of(layer_) == autograd::LargestActivation::recomputed;
  Variable inner;
  {
    // Where they are not saved, their memory is free before the second product.
    const Variable gate_up = recompute_product ? experts_.gate_up_proj.forward_tokens_recomputable(x, rows)
                                               : experts_.gate_up_proj.forward_tokens(x, rows);
    inner = autograd::expert_swiglu(gate_up, routing.weights, rows);
  }
  return autograd::sum_rows(experts_.down_proj.forward(inner, rows), rows);
}

std::unique_ptr<LayerPart> make_feed_forward(const ModelConfig& config, std::int64_t layer,
                                             const ParameterOptions& options) {
  if (config.experts.in_layer(layer)) return std::make_unique<MoE>(config, layer, options);
  return std::make_unique<Mlp>(config, layer, options);
}

void read_router_losses(ConfigReader& in, ModelConfig& config) {
  const double factor = in.number("router_aux_loss_coef", 0.001, false);
  if (factor < 0) in.fault("router_aux_loss_coef", fmt::format("{} is negative", factor));
  if (in.boolean("output_router_logits", false)) config.experts.balance_loss = static_cast<float>(factor);
}

}  // namespace quench::nn
