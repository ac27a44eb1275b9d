#pragma once
// Sliding windows in config.json: their size, and the layers that have one.

#include <vector>

#include "nn/spec/config_reader.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

// A positive integer; null: none; absent: `fallback` (0: none).
inline void read_sliding_window(ConfigReader& in, std::int64_t fallback, ModelConfig& config) {
  const Json* window = in.json().find("sliding_window");
  if (window == nullptr) {
    config.sliding_window = fallback;
  } else if (!window->is_null()) {
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    window->is_integer() && window->as_double() >= 1 && window->as_double() < 2e9,
                    "{}:{}: sliding_window: expected a positive integer or null, got {}", in.source(), window->line(),
                    window->dump());
    config.sliding_window = window->as_int();
  }
}

// Qwen2 and Qwen3, as in Transformers: if use_sliding_window, sliding_window applies in the layers of layer_types, by
// default from max_window_layers. Returns LayerKinds::windowed.
[[nodiscard]] std::vector<bool> read_layer_windows(ConfigReader& in, ModelConfig& config);
// LayerKinds::windowed of the window that was read: the layers of layer_types, or `otherwise` without it. Without such
// layers there is no window.
[[nodiscard]] std::vector<bool> read_window_types(ConfigReader& in, std::vector<bool> otherwise, ModelConfig& config);
// Qwen3-MoE: in all layers.
void read_switched_window(ConfigReader& in, ModelConfig& config);
void write_layer_windows(const ModelConfig& config, Json& json);

inline void write_sliding_window(const ModelConfig& config, Json& json) {
  json.set("sliding_window", config.sliding_window > 0 ? Json(config.sliding_window) : Json());
}

}  // namespace quench::nn
