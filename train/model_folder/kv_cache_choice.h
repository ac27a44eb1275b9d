#pragma once
// KV cache of an opened model, by an option's name: auto, model or a name of kv_formats().

#include <filesystem>
#include <string>
#include <string_view>

#include "nn/decoder/causal_lm.h"

namespace quench {

// As the folder says (quantization_config.kv_cache_scheme), else in the model's dtype.
inline constexpr std::string_view kAutoKvCache = "auto";
// In the model's dtype.
inline constexpr std::string_view kModelKvCache = "model";

// "auto (as the folder says, else the model's dtype), model, fp8 (float8 e4m3) or int8 (...)"
[[nodiscard]] std::string kv_cache_names();
// Throws bad_config for an unknown name.
void check_kv_cache_name(std::string_view name);

// A format with the folder's scales if it has them for this format, else with dynamic ones. `folder`: empty: none.
// Throws bad_config for an unknown name, and the errors of read_kv_cache(). Warns of a scheme that is not supported.
[[nodiscard]] nn::KvCacheElements choose_kv_cache(std::string_view name, const std::filesystem::path& folder,
                                                  const nn::ModelConfig& config, Device device);

}  // namespace quench
