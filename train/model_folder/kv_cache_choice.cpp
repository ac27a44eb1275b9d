#include "train/model_folder/kv_cache_choice.h"

#include <fmt/ranges.h>

#include "core/json/json_member.h"
#include "core/system/log.h"
#include "export/formats/stored_weights.h"
#include "export/kv_cache/kv_cache_scales.h"

namespace quench {
namespace {

std::optional<KvCacheScheme> stored_scheme(const std::filesystem::path& folder, const nn::ModelConfig& config) {
  const Json* quantization = find_member(config.source, {kQuantizationConfig});
  if (folder.empty() || quantization == nullptr || find_text(*quantization, {"quant_method"}) != "compressed-tensors")
    return std::nullopt;
  try {
    return read_kv_cache_scheme(*quantization, (folder / "config.json").string());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    QUENCH_LOG_WARN("{}: the KV cache stays in the model's dtype", error.what());
    return std::nullopt;
  }
}

}  // namespace

std::string kv_cache_names() {
  std::string text = fmt::format("{} (as the model folder says, else the model's dtype), {} (the model's dtype)",
                                 kAutoKvCache, kModelKvCache);
  for (const KvFormat& format : kv_formats()) text += fmt::format(", {} ({})", format.name, format.summary);
  return text;
}

void check_kv_cache_name(std::string_view name) {
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  name == kAutoKvCache || name == kModelKvCache || kv_formats().find(name) != nullptr,
                  "--kv-cache '{}' is unknown; known: {}, {}, {}", name, kAutoKvCache, kModelKvCache,
                  fmt::join(kv_formats().names(), ", "));
}

nn::KvCacheElements choose_kv_cache(std::string_view name, const std::filesystem::path& folder,
                                    const nn::ModelConfig& config, Device device) {
  check_kv_cache_name(name);
  if (name == kModelKvCache) return {};
  const KvFormat* format = kv_formats().find(name);
  const std::optional<KvCacheScheme> stored = stored_scheme(folder, config);
  if (!stored || (format != nullptr && stored->format != format)) return {.format = format, .scales = {}};
  nn::KvCacheElements elements = read_kv_cache(folder, *stored, config, device);
  QUENCH_LOG_INFO("{}: KV cache in {}", folder.string(), stored->describe());
  return elements;
}

}  // namespace quench
