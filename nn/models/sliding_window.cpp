#include "nn/models/sliding_window.h"

#include <algorithm>

namespace quench::nn {
namespace {

constexpr std::string_view kFullAttention = "full_attention", kSlidingAttention = "sliding_attention";

// Defaults of Transformers' Qwen2, Qwen3 and Qwen3-MoE.
constexpr std::int64_t kQwenWindow = 4096, kQwenFullLayers = 28;

}  // namespace

void read_switched_window(ConfigReader& in, ModelConfig& config) {
  if (in.boolean("use_sliding_window", false)) read_sliding_window(in, kQwenWindow, config);
}

std::vector<bool> read_window_types(ConfigReader& in, std::vector<bool> otherwise, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  std::vector<bool> windowed = std::move(otherwise);
  if (const Json* list = in.find("layer_types"); list != nullptr) {
    if (!list->is_array() || list->as_array().size() != layers) {
      in.fault("layer_types", fmt::format("expected a list of {} names, one a layer", layers));
      return {};
    }
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const Json& type = list->as_array()[layer];
      if (type != Json(kFullAttention) && type != Json(kSlidingAttention)) {
        in.fault("layer_types",
                 fmt::format("{} is not supported; known: {}, {}", type.dump(), kFullAttention, kSlidingAttention));
        return {};
      }
      windowed[layer] = type == Json(kSlidingAttention);
      if (windowed[layer] && config.sliding_window == 0) {
        in.fault("layer_types",
                 fmt::format("layer {} is of type {}, which needs use_sliding_window: true and a sliding_window", layer,
                             kSlidingAttention));
        return {};
      }
    }
  }
  if (std::ranges::count(windowed, true) == 0) config.sliding_window = 0;
  return windowed;
}

std::vector<bool> read_layer_windows(ConfigReader& in, ModelConfig& config) {
  read_switched_window(in, config);
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  std::vector<bool> windowed(layers, false);
  if (config.sliding_window > 0 && in.find("layer_types") == nullptr) {
    const std::int64_t full = in.integer("max_window_layers", kQwenFullLayers, 0, kMaxDimension);
    for (std::size_t layer = 0; layer < layers; ++layer) windowed[layer] = static_cast<std::int64_t>(layer) >= full;
  }
  return read_window_types(in, std::move(windowed), config);
}

void write_layer_windows(const ModelConfig& config, Json& json) {
  if (config.sliding_window == 0) return;
  json.set("use_sliding_window", true);
  json.set("sliding_window", config.sliding_window);
  Json types = Json::array();
  for (const BlockSpec& block : config.blocks)
    types.push_back(Json(block.attention.window > 0 ? kSlidingAttention : kFullAttention));
  json.set("layer_types", std::move(types));
}

}  // namespace quench::nn
