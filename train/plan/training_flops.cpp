#include "train/plan/training_flops.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "nn/experts/expert_linear.h"
#include "train/metrics/peak_flops.h"

namespace quench {
namespace {

// Index of "model.layers.<index>."; nullopt elsewhere.
std::optional<std::int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  std::int64_t index = 0;
  if (!name.starts_with(kLayers)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), index);
  return error == std::errc() ? std::optional(index) : std::nullopt;
}

}  // namespace

SparedWork spared_work(nn::CausalLm& model) {
  SparedWork spared;
  model.visit([&](const std::string& name, nn::Module& module) {
    const auto add = [&](const nn::Parameter& weight) {
      if (weight.frozen) spared.weight_gradients.insert(name);
    };
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) add(linear->weight());
    if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) add(experts->weight());
  });
  const std::vector<nn::Parameter*> parameters = model.parameters();
  if (std::ranges::none_of(parameters, [](const nn::Parameter* parameter) { return parameter->frozen; })) return spared;
  spared.layers = model.config().num_hidden_layers;
  for (const nn::Parameter* parameter : parameters) {
    const bool table = parameter->name == "model.embed_tokens.weight";
    if (table) spared.tied_head = parameter->frozen && model.config().tie_word_embeddings;
    if (!parameter->variable.requires_grad()) continue;
    spared.layers = std::min(spared.layers, table ? 0 : layer_of(parameter->name).value_or(spared.layers));
  }
  return spared;
}

TrainingFlops training_flops(const nn::ModelConfig& model, std::span<const recipes::LayerConversion> layers,
                             std::int64_t seq_len, std::optional<std::int64_t> adapters, const SparedWork& spared) {
  TrainingFlops flops;
  flops.high_precision = model.training_flops_per_token(seq_len);
  double gradients = 0;  // wgrad
  // Of a tied head that is no converted layer.
  const bool head_apart =
      std::ranges::none_of(layers, [](const recipes::LayerConversion& layer) { return layer.name == nn::kHeadName; });
  for (const recipes::LayerConversion& layer : layers) {
    // Active experts only.
    double uses = layer.experts > 0 ? static_cast<double>(model.experts.per_token) : 1.0;
    if (layer.name == nn::kHeadName) uses += static_cast<double>(model.mtp.layers);
    const double product = 2 * uses * static_cast<double>(layer.in_features) * static_cast<double>(layer.out_features);
    gradients += product;
    const bool no_dgrad = layer_of(layer.name).value_or(spared.layers) < spared.layers;
    const bool no_wgrad =
        no_dgrad || spared.weight_gradients.contains(layer.name) || (spared.tied_head && layer.name == nn::kHeadName);
    flops.high_precision -= (no_wgrad ? product : 0) + (no_dgrad ? product : 0);
    for (const recipes::LinearGemm gemm : layer.float8) {
      if ((adapters || no_wgrad) && gemm == recipes::LinearGemm::wgrad) continue;
      if (no_dgrad && gemm == recipes::LinearGemm::dgrad) continue;
      flops.float8 += product;
    }
  }
  flops.high_precision -= flops.float8;
  if (spared.tied_head && head_apart)
    flops.high_precision -=
        2 * static_cast<double>((1 + model.mtp.layers) * model.vocab_size) * static_cast<double>(model.hidden_size);
  if (spared.layers > 0) {
    const double attention = model.training_flops_per_token(seq_len) - model.training_flops_per_token(0);
    flops.high_precision -= 2.0 / 3.0 * attention * static_cast<double>(spared.layers) /
                            static_cast<double>(std::max<std::int64_t>(1, model.all_layers()));
  }
  if (!adapters) return flops;
  if (model.tie_word_embeddings && head_apart)
    gradients += 2 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
  flops.high_precision += 6 * static_cast<double>(*adapters) - gradients;
  return flops;
}

namespace {

// Rows of whole weights and of all layers, from those of this rank's slices. Layers without rows, of other pipeline
// stages, are taken to be as the stage's first.
std::vector<recipes::LayerConversion> whole_rows(const ModelSetup& setup) {
  std::vector<recipes::LayerConversion> rows = setup.conversion;
  std::int64_t slices = 1;
  for (const nn::Parameter* parameter : setup.model->parameters())
    slices = std::max(slices, parameter->slice.place.count);
  for (recipes::LayerConversion& row : rows) row.out_features *= slices;
  std::set<std::int64_t> known;
  for (const recipes::LayerConversion& row : rows) known.insert(layer_of(row.name).value_or(-1));
  const std::string first = fmt::format("model.layers.{}.", setup.model->chunks().front().begin);
  std::vector<recipes::LayerConversion> layer;
  std::ranges::copy_if(rows, std::back_inserter(layer), [&](const auto& row) { return row.name.starts_with(first); });
  for (std::int64_t i = 0; i < setup.config.num_hidden_layers; ++i) {
    if (known.contains(i)) continue;
    for (const recipes::LayerConversion& row : layer) {
      rows.push_back(row);
      rows.back().name = fmt::format("model.layers.{}.{}", i, row.name.substr(first.size()));
    }
  }
  return rows;
}

}  // namespace

TrainingFlops training_flops(const ModelSetup& setup, std::int64_t seq_len) {
  return training_flops(setup.config, whole_rows(setup), seq_len, trained_adapters(setup), spared_work(*setup.model));
}

std::optional<double> sol_seconds(const TrainingFlops& flops, std::string_view device_name) {
  const auto bf16 = bf16_peak_flops(device_name), float8 = float8_peak_flops(device_name);
  if (!bf16 || (flops.float8 > 0 && !float8)) return std::nullopt;
  return flops.high_precision / *bf16 + (flops.float8 > 0 ? flops.float8 / *float8 : 0);
}

std::string shares(const TrainingFlops& flops, DType high_precision, std::string_view codes) {
  if (flops.float8 == 0) return fmt::format("100% {}", to_string(high_precision));
  const double share = flops.float8 / flops.total() * 100;
  return fmt::format("{:.1f}% {}, {:.1f}% {}", share, codes, 100 - share, to_string(high_precision));
}

}  // namespace quench
