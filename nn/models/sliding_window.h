#pragma once
// The sliding windows of Mistral, Qwen and their relatives.

#include "nn/config_reader.h"
#include "nn/model_config.h"

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

// Of Qwen2 and Qwen3, as their classes in Transformers: sliding_window applies where use_sliding_window is true, in the
// layers that layer_types names; without a list, in those from max_window_layers on.
void read_layer_windows(ConfigReader& in, ModelConfig& config);
// The same of Qwen3-MoE: in all layers.
void read_switched_window(ConfigReader& in, ModelConfig& config);
// Sets the members that the two read, of a model with a window.
void write_layer_windows(const ModelConfig& config, Json& json);

inline void write_sliding_window(const ModelConfig& config, Json& json) {
  json.set("sliding_window", config.sliding_window > 0 ? Json(config.sliding_window) : Json());
}

}  // namespace quench::nn
