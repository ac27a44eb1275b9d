#pragma once
// RoPE settings of config.json.

#include <string_view>

#include "nn/spec/config_reader.h"
#include "nn/spec/model_config.h"
#include "nn/spec/model_family.h"

namespace quench::nn {

// As in Transformers: rope_scaling unless absent, null or empty, else rope_parameters. Empty if neither exists.
[[nodiscard]] std::string_view rope_key(const Json& json);

// Sets rope, and local_rope in families that have one; both spellings (parse_model_config).
void read_ropes(ConfigReader& in, std::string_view source, const ModelDefaults& defaults, ModelConfig& config);

// Members for older and newer readers.
void write_ropes(const ModelConfig& config, Json& json);

}  // namespace quench::nn
