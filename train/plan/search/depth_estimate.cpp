#include "train/plan/search/depth_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "train/config/objective_table.h"

namespace quench {
namespace {

using nn::BlockSpec;

// Layers that a fused prefetch, a window of offloaded layers and the first and last layer do not fill.
constexpr std::int64_t kLeastLayers = 8;
constexpr std::size_t kLongestPeriod = 8, kLongestPrefix = 8;

// Layers that take the same memory and the same work.
bool same_kind(const BlockSpec& a, const BlockSpec& b) {
  const nn::AttentionSpec &x = a.attention, &y = b.attention;
  const nn::FeedForwardSpec &f = a.feed_forward, &g = b.feed_forward;
  return x.make == y.make && x.window == y.window && x.chunk == y.chunk && x.heads == y.heads &&
         x.kv_heads == y.kv_heads && x.key_dim == y.key_dim && x.value_dim == y.value_dim &&
         x.rotary.has_value() == y.rotary.has_value() && x.mla.has_value() == y.mla.has_value() && f.make == g.make &&
         f.intermediate_size == g.intermediate_size && f.experts.has_value() == g.experts.has_value();
}

// Layers from `prefix` on repeat with this period.
bool repeats(const std::vector<BlockSpec>& blocks, std::size_t prefix, std::size_t period) {
  for (std::size_t i = prefix; i + period < blocks.size(); ++i)
    if (!same_kind(blocks[i], blocks[i + period])) return false;
  return true;
}

nn::ModelConfig first_layers(const nn::ModelConfig& model, std::size_t count) {
  nn::ModelConfig shallow = model;
  shallow.blocks.resize(count);
  shallow.num_hidden_layers = static_cast<std::int64_t>(count);
  return shallow;
}

// The same share of the layers.
RunConfig with_layers(RunConfig config, std::int64_t layers, std::int64_t all) {
  TrainingSection& training = config.training;
  for (std::int64_t* count :
       {&training.offload_layers, &training.recompute_mlp_layers, &training.keep_attention_layers})
    *count = *count * layers / all;
  return config;
}

// A quantity of which `a` and `b` are those of two depths.
double deeper(double a, double b, double steps) {
  return a + (b - a) * steps;
}
std::int64_t deeper(std::int64_t a, std::int64_t b, double steps) {
  return std::llround(deeper(static_cast<double>(a), static_cast<double>(b), steps));
}

StepWork deeper(const StepWork& a, const StepWork& b, double steps) {
  StepWork work = b;
  work.flops_per_token.float8 = deeper(a.flops_per_token.float8, b.flops_per_token.float8, steps);
  work.flops_per_token.high_precision =
      deeper(a.flops_per_token.high_precision, b.flops_per_token.high_precision, steps);
  for (double StepWork::*part :
       {&StepWork::attention_flops_per_token, &StepWork::activation_bytes, &StepWork::base_bytes,
        &StepWork::adapter_bytes, &StepWork::update_bytes, &StepWork::streamed_bytes, &StepWork::state_bytes,
        &StepWork::kept_bytes, &StepWork::exchange_bytes, &StepWork::recomputed_products})
    work.*part = deeper(a.*part, b.*part, steps);
  return work;
}

}  // namespace

std::optional<ShallowModels> shallow_models(const nn::ModelConfig& model) {
  const std::size_t layers = model.blocks.size();
  for (std::size_t period = 1; period <= kLongestPeriod; ++period)
    for (std::size_t prefix = 0; prefix <= kLongestPrefix; ++prefix) {
      // Whole periods, and the layers that are left after those of the model.
      const std::size_t step = (kLeastLayers + period - 1) / period * period;
      if (prefix + 2 * step + period > layers / 2 || !repeats(model.blocks, prefix, period)) continue;
      const std::size_t fewer = prefix + step + (layers - prefix) % period, more = fewer + step;
      return ShallowModels{.fewer = first_layers(model, fewer),
                           .more = first_layers(model, more),
                           .steps = static_cast<double>(layers - fewer) / static_cast<double>(step)};
    }
  return std::nullopt;
}

bool scales_with_depth(const RunConfig& config, const std::vector<std::string>& overrides) {
  // Keys that may name single layers, as those of objectives may.
  constexpr std::array<std::string_view, 8> kPatterns{
      "--recipe.filter",    "--recipe.rules",      "--training.freeze",    "--training.train",
      "--optimizer.groups", "--lora.rank_pattern", "--lora.alpha_pattern", "--lora.targets"};
  const bool named = std::ranges::any_of(overrides, [&](const std::string& word) {
    return std::ranges::any_of(kPatterns, [&](std::string_view key) { return word.starts_with(key); });
  });
  const bool objective = std::ranges::any_of(objective_table().entries(), [&](const ObjectiveEntry& entry) {
    return entry.section.present != nullptr && entry.section.present(config);
  });
  return config.parallel.pipeline == 1 && !named && !objective;
}

std::optional<double> most_gaps(const RunConfig& config, std::int64_t layers) {
  const bool leaves = (config.training.offload_layers > 0 && config.training.offload_layers < layers) ||
                      (config.optimizer.offload_ratio > 0 && !config.optimizer.offload_streamed);
  return leaves ? std::nullopt : std::optional(1.1);
}

RunEstimate estimate_by_depth(const RunConfig& config, std::int64_t layers, const ShallowModels& shallow, Device target,
                              const Cluster& cluster) {
  const auto at = [&](const nn::ModelConfig& model) {
    return estimate_run(ResolvedConfig(with_layers(config, model.num_hidden_layers, layers)), target, cluster,
                        {.brief = true, .model = model});
  };
  const RunEstimate fewer = at(shallow.fewer);
  RunEstimate e = at(shallow.more);
  e.total_bytes = deeper(fewer.device.peak, e.device.peak, shallow.steps);
  e.host_bytes = deeper(fewer.host_bytes, e.host_bytes, shallow.steps);
  if (!e.time || !cluster.rates) return e;
  QUENCH_CHECK(fewer.traffic.size() == e.traffic.size(), "{} and {} groups of processes", fewer.traffic.size(),
               e.traffic.size());
  for (std::size_t i = 0; i < e.traffic.size(); ++i) {
    e.traffic[i].bytes = deeper(fewer.traffic[i].bytes, e.traffic[i].bytes, shallow.steps);
    e.traffic[i].calls = deeper(fewer.traffic[i].calls, e.traffic[i].calls, shallow.steps);
  }
  e.work = deeper(fewer.work, e.work, shallow.steps);
  e.time = predict_step(*cluster.rates, cluster, e.work, e.traffic);
  return e;
}

}  // namespace quench
