#pragma once
// RoPE settings of config.json.

#include <string>
#include <string_view>

#include "nn/spec/config_reader.h"
#include "nn/spec/model_config.h"
#include "nn/spec/model_family.h"

namespace quench::nn {

// As in Transformers: rope_scaling unless absent, null or empty, else rope_parameters. Empty if neither exists.
[[nodiscard]] std::string_view rope_key(const Json& json);

// rope_type, or type, of settings; "default" without. Older names of longrope (ModelDefaults::old_longrope) are
// replaced.
[[nodiscard]] std::string rope_type_name(const Json& settings, const ModelDefaults& defaults);

// Settings of one RoPE: rope_theta, rope_type and what belongs to the type.
[[nodiscard]] Json rope_json(const RopeScaling& rope);

// Sets rope, and local_rope in families that have one; both spellings (parse_model_config).
void read_ropes(ConfigReader& in, std::string_view source, const ModelDefaults& defaults, ModelConfig& config);

// Members for older and newer readers.
void write_ropes(const ModelConfig& config, Json& json);

}  // namespace quench::nn
