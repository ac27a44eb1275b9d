#include "nn/experts/moe.h"

#include <algorithm>
#include <numeric>

#include "autograd/functions.h"
#include "autograd/swiglu.h"
#include "core/ops/experts/grouped_gemm.h"
#include "nn/experts/expert_load.h"
#include "nn/modules/initialize.h"

namespace quench::nn {
namespace {

// "model.layers.0.mlp.gate." -> "model.layers.0."
std::string layer_path(std::string path) {
  for (int level = 0; level < 2; ++level) path.resize(path.rfind('.', path.size() - 2) + 1);
  return path;
}

// f32 for any weight dtype: updates of the expert bias are relatively small.
ParameterOptions bias_options(ParameterOptions options) {
  options.dtype = DType::f32;
  options.trainable = false;
  return options;
}

// Local expert index of each received row: i32 [R,1].
Tensor expert_of_rows(const std::vector<std::int64_t>& received, std::int64_t experts_here, std::int64_t rows,
                      Device device) {
  const MemoryScope scope(MemoryCategory::workspace);
  if (device.is_meta()) return Tensor::empty({rows, 1}, DType::i32, device);
  const Tensor host = Tensor::empty_pinned({rows, 1}, DType::i32, device);
  auto* out = host.data<std::int32_t>();
  for (std::size_t i = 0; i < received.size(); ++i)
    out = std::fill_n(out, received[i], static_cast<std::int32_t>(static_cast<std::int64_t>(i) % experts_here));
  return host.to(device);
}

std::vector<std::int64_t> sums_of(const std::vector<std::int64_t>& counts, std::size_t size) {
  std::vector<std::int64_t> sums;
  for (std::size_t begin = 0; begin < counts.size(); begin += size)
    sums.push_back(std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(begin),
                                   counts.begin() + static_cast<std::ptrdiff_t>(begin + size), std::int64_t{0}));
  return sums;
}

}  // namespace

MoE::Router::Router(const ModelConfig& config, const ExpertsSpec& spec, const ParameterOptions& options)
    : hf_path(spec.names.router),
      hf_bias(spec.names.expert_bias),
      weight(make_parameter({spec.count, config.hidden_size}, options, Initializer::normal, config.initializer_range)) {
  add_parameter("weight", weight);
  if (spec.router_bias) add_parameter("bias", bias.emplace(make_parameter({spec.count}, options, Initializer::zeros)));
  if (!spec.expert_bias) return;
  expert_bias.emplace(make_parameter({spec.count}, bias_options(options), Initializer::zeros));
  add_parameter("choice_bias", *expert_bias);
}

void MoE::Router::name_pieces(const std::string& prefix) {
  const std::string layer = layer_path(prefix);
  weight.pieces = {{fmt::format("{}{}.weight", layer, hf_path), 0, weight.global_shape[0]}};
  if (bias) bias->pieces = {{fmt::format("{}{}.bias", layer, hf_path), 0, bias->global_shape[0]}};
  if (expert_bias) expert_bias->pieces = {{layer + std::string(hf_bias), 0, expert_bias->global_shape[0]}};
}

MoE::SharedGate::SharedGate(const ModelConfig& config, const ParameterOptions& options)
    : weight(make_parameter({1, config.hidden_size}, options, Initializer::normal, config.initializer_range)) {
  add_parameter("weight", weight);
}

MoE::Experts::Experts(const ModelConfig& config, const ExpertsSpec& spec, const ParameterOptions& options)
    : gate_up_proj(spec.count, config.hidden_size, std::string(spec.names.experts),
                   {.bias = spec.bias,
                    .init_std = config.initializer_range,
                    .parameters = options,
                    .parts = {{std::string(spec.names.gate), spec.intermediate_size},
                              {std::string(spec.names.up), spec.intermediate_size}}}),
      down_proj(spec.count, spec.intermediate_size, std::string(spec.names.experts),
                {.bias = spec.bias,
                 .init_std = residual_init_std(config),
                 .parameters = options,
                 .parts = {{std::string(spec.names.down), config.hidden_size}}}) {
  add_module("gate_up_proj", gate_up_proj);
  add_module("down_proj", down_proj);
}

MoE::MoE(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
    : MoE(config, block, *block.feed_forward.experts, options) {}

MoE::MoE(const ModelConfig& config, const BlockSpec& block, const ExpertsSpec& spec, const ParameterOptions& options)
    : layer_(block.layer),
      per_token_(spec.per_token),
      rule_{.scoring = spec.sigmoid ? RouterScoring::sigmoid : RouterScoring::softmax,
            .normalize = spec.normalize,
            .factor = spec.factor,
            .groups = spec.groups,
            .groups_per_token = spec.groups_per_token},
      score_before_experts_(spec.score_before_experts),
      clamped_(spec.clamped),
      gate_(config, spec, options),
      experts_(config, spec, options) {
  add_module("gate", gate_);
  add_module("experts", experts_);
  if (spec.shared_width > 0)
    add_module(std::string(spec.names.shared), shared_.emplace(config, block, spec.shared_width, options));
  if (spec.shared_gate) add_module(std::string(spec.names.shared_gate), shared_gate_.emplace(config, options));
}

std::int64_t MoE::alignment(Device device) const {
  return std::max(
      {experts_.gate_up_proj.kernel().alignment(), experts_.down_proj.kernel().alignment(), group_alignment(device)});
}

Variable MoE::forward(const Variable& x, const ForwardContext& context) const {
  const Variable logits =
      autograd::router_logits(x, gate_.weight.weight(), gate_.bias ? gate_.bias->weight() : Weight());
  autograd::Routing routing;
  {
    const auto bias = gate_.expert_bias ? gate_.expert_bias->weight().acquire() : Weight().acquire();
    const bool counts = context.router_terms.wanted() || context.expert_load != nullptr;
    routing = autograd::route(logits, {.rule = rule_,
                                       .choices = per_token_,
                                       .alignment = dispatcher_ != nullptr ? 1 : alignment(x.value().device()),
                                       .bias = bias.value(),
                                       .terms = context.router_terms,
                                       .counted = counts ? context.counted_rows : autograd::TokenPermutation{},
                                       .exchange = context.keys.exchange,
                                       .part = context.part});
  }
  if (const autograd::CountedTokens& counted = routing.counted;
      context.expert_load != nullptr && counted.logits.size(0) > 0)
    context.expert_load->add(layer_, counted.counts, context.router_terms.wanted() ? counted.logits : Tensor());
  const bool recompute_gate_up = context.activations.of(layer_) == autograd::SavePolicy::recompute;
  const Variable routed = dispatcher_ != nullptr ? run_expert_parallel(x, routing, recompute_gate_up)
                                                 : run_experts(x, routing.weights, routing.rows, recompute_gate_up);
  return shared_ ? autograd::add(routed, run_shared(x, context)) : routed;
}

Variable MoE::run_shared(const Variable& x, const ForwardContext& context) const {
  if (!shared_gate_) return shared_->forward(x, context);
  // As the one choice among one expert.
  const autograd::Routing routing = autograd::route(autograd::router_logits(x, shared_gate_->weight.weight()),
                                                    {.rule = {.scoring = RouterScoring::sigmoid}, .choices = 1});
  return shared_->forward_weighted(x, routing.weights, routing.rows, context);
}

Variable MoE::run_experts(const Variable& x, const Variable& weights, const autograd::TokenPermutation& rows,
                          bool recompute_gate_up) const {
  Variable inner;
  {
    // If recomputed, gate_up is freed before the down GEMM.
    const Variable gate_up = recompute_gate_up ? experts_.gate_up_proj.forward_tokens_with_recompute(x, rows)
                                               : experts_.gate_up_proj.forward_tokens(x, rows);
    inner = autograd::expert_swiglu(gate_up, weights, rows, score_before_experts_,
                                    experts_.down_proj.input_quant_request(), clamped_);
  }
  return experts_.down_proj.forward_and_sum(inner, weights, rows);
}

Variable MoE::run_expert_parallel(const Variable& x, const autograd::Routing& routing, bool recompute_gate_up) const {
  const autograd::TokenPermutation& rows = routing.rows;
  const Device device = x.value().device();
  const std::int64_t pairs = routing.weights.value().numel();
  const auto exchange = dispatcher_->exchange_counts(rows.counts, pairs);
  autograd::TokenPermutation single = rows;
  single.choices = 1;
  single.rows = rows.rows.view({pairs, 1});
  const Variable weights = autograd::permute_tokens(autograd::reshape(routing.weights, {pairs, 1}), single);
  const Variable sent = autograd::permute_tokens(x, rows);
  std::vector<std::int64_t> own;
  const std::vector<std::int64_t> received = exchange->wait(own);
  const std::size_t experts_here = own.size() / static_cast<std::size_t>(dispatcher_->size());
  const autograd::RowCounts counts{sums_of(own, experts_here), sums_of(received, experts_here)};
  const auto [here, weights_here] = autograd::all_to_all_weighted_rows(sent, weights, *dispatcher_, counts, "dispatch");

  // Each received row is a token with one expert.
  const autograd::TokenPermutation sorted = autograd::sort_tokens(
      expert_of_rows(received, static_cast<std::int64_t>(experts_here), counts.received_rows(), device),
      static_cast<std::int64_t>(experts_here), alignment(device));
  const Variable made = run_experts(here, weights_here, sorted, recompute_gate_up);
  return autograd::unpermute_tokens(autograd::all_to_all_rows(made, *dispatcher_, counts.reversed(), "combine"), rows);
}

void read_router_losses(ConfigReader& in, ModelConfig& config) {
  const double factor = in.number("router_aux_loss_coef", 0.001, false);
  if (factor < 0) in.fault("router_aux_loss_coef", fmt::format("{} is negative", factor));
  if (in.boolean("output_router_logits", false)) config.router_balance_loss = static_cast<float>(factor);
}

}  // namespace quench::nn
