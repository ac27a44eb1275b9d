#include "export/kv_cache/kv_cache_scheme.h"

namespace quench {
namespace {

constexpr std::string_view kKey = "kv_cache_scheme";

}  // namespace

const ChoiceTable<KvScaleChoice>& kv_scale_choices() {
  static const ChoiceTable<KvScaleChoice> table(
      "scales of a KV cache",
      {{.name = "tensor",
        .summary = "one of a layer's keys and one of its values, by calibration",
        .strategy = "tensor",
        .dynamic = false},
       {.name = "head", .summary = "one for each KV head, by calibration", .strategy = "attn_head", .dynamic = false},
       {.name = "dynamic",
        .summary = "one for each token and KV head in Quench, 1 in vLLM, without calibration",
        .strategy = "tensor",
        .dynamic = true}});
  return table;
}

std::string KvCacheScheme::describe() const {
  return fmt::format("{}, scales: {}", format->name, scales->summary);
}

Json to_json(const KvCacheScheme& scheme) {
  Json json = Json::object();
  json.set("num_bits", 8);
  json.set("type", scheme.format->type);
  json.set("symmetric", true);
  json.set("strategy", scheme.scales->strategy);
  json.set("group_size", Json());
  json.set("block_structure", Json());
  json.set("dynamic", scheme.scales->dynamic);
  json.set("actorder", Json());
  json.set("scale_dtype", Json());
  json.set("zp_dtype", Json());
  json.set("observer", Json());
  json.set("observer_kwargs", Json::object());
  return json;
}

bool has_kv_cache_scheme(const Json& quantization) {
  const Json* scheme = quantization.is_object() ? quantization.find(kKey) : nullptr;
  return scheme != nullptr && !scheme->is_null();
}

bool quantizes_cache_alone(const Json& quantization) {
  if (!has_kv_cache_scheme(quantization)) return false;
  const Json* groups = quantization.find("config_groups");
  return groups == nullptr || groups->is_null() || (groups->is_object() && groups->as_object().empty());
}

std::optional<KvCacheScheme> read_kv_cache_scheme(const Json& quantization, std::string_view source) {
  if (!has_kv_cache_scheme(quantization)) return std::nullopt;
  const Json& json = quantization.at(kKey);
  const std::string where = fmt::format("{}: quantization_config.{}", source, kKey);
  QUENCH_CHECK_AS(ErrorCode::corrupt, json.is_object(), "{}: expected an object, got {}", where, json.type_name());
  // Absent and null: the default.
  const auto member = [&](std::string_view key, Json fallback) {
    const Json* value = json.find(key);
    return value == nullptr || value->is_null() ? std::move(fallback) : *value;
  };
  const auto refuse = [&](std::string_view key, const Json& value, std::string_view expected) {
    QUENCH_FAIL(ErrorCode::unsupported, "{}.{}: {} is not supported, expected {}", where, key, value.dump(), expected);
  };
  KvCacheScheme scheme;
  if (const Json bits = member("num_bits", 8); bits != Json(8)) refuse("num_bits", bits, "8");
  const Json type = member("type", "int");
  for (const KvFormat& format : kv_formats())
    if (type == Json(format.type)) scheme.format = &format;
  if (scheme.format == nullptr) refuse("type", type, "\"float\" or \"int\"");
  if (const Json symmetric = member("symmetric", true); symmetric != Json(true)) refuse("symmetric", symmetric, "true");
  const Json strategy = member("strategy", "tensor"), dynamic = member("dynamic", false);
  if (dynamic != Json(true) && dynamic != Json(false)) refuse("dynamic", dynamic, "true or false");
  for (const KvScaleChoice& choice : kv_scale_choices())
    if (dynamic == Json(choice.dynamic) && (choice.dynamic || strategy == Json(choice.strategy)))
      scheme.scales = &choice;
  if (scheme.scales == nullptr) refuse("strategy", strategy, "\"tensor\" or \"attn_head\"");
  return scheme;
}

}  // namespace quench
