#pragma once
// kv_cache_scheme of compressed-tensors: how a folder's readers quantize the KV cache (vLLM:
// CompressedTensorsKVCacheMethod).

#include <optional>
#include <string>
#include <string_view>

#include "core/json/json.h"
#include "core/ops/kv_cache/kv_format.h"

namespace quench {

// Scales of keys, and of values, of a layer.
struct KvScaleChoice {
  std::string_view name;
  std::string_view summary;
  std::string_view strategy;  // in kv_cache_scheme
  bool dynamic;               // without stored scales
};
// Default first.
[[nodiscard]] const ChoiceTable<KvScaleChoice>& kv_scale_choices();

struct KvCacheScheme {
  const KvFormat* format = nullptr;
  const KvScaleChoice* scales = nullptr;

  [[nodiscard]] bool by_head() const { return scales->strategy == "attn_head"; }
  // "fp8, one scale a layer for keys and one for values"
  [[nodiscard]] std::string describe() const;
};

[[nodiscard]] Json to_json(const KvCacheScheme& scheme);

// Scheme of a quantization_config; absent: none. Throws unsupported or corrupt, naming `source` and key.
[[nodiscard]] std::optional<KvCacheScheme> read_kv_cache_scheme(const Json& quantization, std::string_view source);
[[nodiscard]] bool has_kv_cache_scheme(const Json& quantization);
// Weights and inputs stay in high precision.
[[nodiscard]] bool quantizes_cache_alone(const Json& quantization);

}  // namespace quench
