#include "nn/spec/rope_override.h"

#include <algorithm>
#include <array>
#include <optional>

#include "nn/spec/model_family.h"
#include "nn/spec/rope_config.h"

namespace quench::nn {
namespace {

constexpr std::string_view kScaling = "rope_scaling", kParameters = "rope_parameters", kTheta = "rope_theta",
                           kPartial = "partial_rotary_factor", kOriginal = "original_max_position_embeddings",
                           kLength = "max_position_embeddings", kFactor = "factor",
                           kLocalTheta = "rope_local_base_freq";

// Layer types of rope_parameters.
constexpr std::string_view kFull = "full_attention", kWindowed = "sliding_attention";

constexpr std::array kMembers = {kScaling, kParameters, kTheta, kOriginal, kLength};

// All but kMembers.
void set_other_members(const Json& settings, Json& config) {
  for (const auto& [key, value] : settings.as_object())
    if (std::ranges::find(kMembers, key) == kMembers.end()) config.set(key, value);
}

const Json* find_set(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// The one object of settings that replaces the model's; nullptr for none, both keys, and settings by layer type, which
// are complete.
const Json* new_settings(const Json& settings) {
  const Json* scaling = find_set(settings, kScaling);
  const Json* parameters = find_set(settings, kParameters);
  if ((scaling == nullptr) == (parameters == nullptr)) return nullptr;
  const Json* one = scaling != nullptr ? scaling : parameters;
  return one->is_object() && one->find(kFull) == nullptr && one->find(kWindowed) == nullptr ? one : nullptr;
}

std::optional<ModelConfig> readable(const Json& config) {
  if (!config.is_object() || config.as_object().empty()) return std::nullopt;
  try {
    return parse_model_config(config, "model");
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool has_original(std::string_view type) {
  return type == "llama3" || type == "yarn" || type == "longrope";
}

void replace_theta(const Json& theta, Json& config) {
  config.set(kTheta, theta);
  for (const std::string_view key : {kScaling, kParameters}) {
    const Json* settings = find_set(config, key);
    if (settings == nullptr || !settings->is_object()) continue;
    Json changed = *settings;
    if (changed.find(kTheta) != nullptr) changed.set(kTheta, theta);
    if (const Json* full = changed.find(kFull); full != nullptr && full->is_object()) {
      Json layers = *full;
      layers.set(kTheta, theta);
      changed.set(kFull, std::move(layers));
    }
    config.set(key, std::move(changed));
  }
}

// Longest sequence under the new settings; nullopt: the model's.
std::optional<std::int64_t> scaled_length(const Json& scaling, std::string_view type, std::int64_t original) {
  if (type == "dynamic" || type == "default") return original;
  const Json* factor = find_set(scaling, kFactor);
  if (factor == nullptr || !factor->is_number()) return std::nullopt;
  const double length = factor->as_double() * static_cast<double>(original);
  if (!(length >= 1) || length > static_cast<double>(kMaxDimension)) return std::nullopt;
  return static_cast<std::int64_t>(length);
}

void replace_settings(const Json& settings, const Json& given, const ModelConfig& model, Json& config) {
  const ModelDefaults& defaults = find_model_family(model.architecture)->defaults;
  const std::string type = rope_type_name(given, defaults);
  Json scaling = given;
  if (scaling.find("rope_type") == nullptr && scaling.find("type") == nullptr) scaling.set("rope_type", type);
  const std::int64_t unscaled = unscaled_length(model);
  std::int64_t original = unscaled;
  config.erase(kOriginal);
  if (has_original(type)) {
    const Json* inside = find_set(given, kOriginal);
    const Json* outside = find_set(settings, kOriginal);
    const Json stated = inside != nullptr ? *inside : outside != nullptr ? *outside : Json(unscaled);
    // Where Transformers reads it.
    scaling.set(kOriginal, stated);
    if (type == "longrope") config.set(kOriginal, outside != nullptr ? *outside : stated);
    if (stated.is_integer()) original = stated.as_int();
  }
  const Json* theta = find_set(settings, kTheta);
  config.set(kTheta, theta != nullptr ? *theta : Json(model.rope.theta));
  if (defaults.partial_rotary_factor > 0) config.set(kPartial, Json(model.rope.partial_rotary_factor));
  if (find_set(settings, kLength) == nullptr)
    if (const auto length = scaled_length(scaling, type, original)) config.set(kLength, *length);
  config.erase(kParameters);
  config.erase(kScaling);
  if (!model.local_rope) {
    config.set(kScaling, std::move(scaling));
    return;
  }
  if (scaling.find(kTheta) == nullptr) scaling.set(kTheta, config.at(kTheta));
  config.set(kLocalTheta, model.local_rope->theta);
  config.set(std::string_view(kParameters), Json::Object{{std::string(kFull), std::move(scaling)},
                                                         {std::string(kWindowed), rope_json(*model.local_rope)}});
}

void check_factor(const Json& given, std::vector<std::string>& faults) {
  const Json* factor = find_set(given, kFactor);
  if (factor != nullptr && factor->is_number() && factor->as_double() > 0 && factor->as_double() < 1)
    faults.push_back(fmt::format("factor: {} is below 1, which shortens the context", factor->dump()));
}

}  // namespace

std::int64_t unscaled_length(const ModelConfig& config) {
  const RopeScaling& rope = config.rope;
  switch (rope.type) {
    case RopeScaling::Type::llama3:
    case RopeScaling::Type::yarn:
    case RopeScaling::Type::longrope: return rope.original_max_position_embeddings;
    case RopeScaling::Type::linear:
      return std::max<std::int64_t>(
          1, static_cast<std::int64_t>(static_cast<double>(config.max_position_embeddings) / rope.factor));
    default: return config.max_position_embeddings;
  }
}

void override_rope(const Json& settings, Json& config) {
  const bool empty = config.as_object().empty();
  set_other_members(settings, config);
  const std::optional<ModelConfig> model = empty ? std::nullopt : readable(config);
  const Json* given = new_settings(settings);
  if (model && given != nullptr) {
    if (const Json* length = find_set(settings, kLength)) config.set(kLength, *length);
    return replace_settings(settings, *given, *model, config);
  }
  for (const std::string_view key : kMembers)
    if (const Json* value = settings.find(key)) config.set(key, *value);
  if (!model) return;
  // Complete settings: what the model has under the other key would override them, or be overridden.
  const bool scaling = find_set(settings, kScaling) != nullptr, parameters = find_set(settings, kParameters) != nullptr;
  if (parameters && !scaling) config.erase(kScaling);
  if (scaling && !parameters) config.erase(kParameters);
  const Json* theta = find_set(settings, kTheta);
  if (theta != nullptr && !scaling && !parameters) replace_theta(*theta, config);
}

std::vector<std::string> rope_override_faults(const Json& settings, const Json& config) {
  const Json* given = new_settings(settings);
  Json others = config;
  if (given != nullptr && !config.as_object().empty()) set_other_members(settings, others);
  const std::optional<ModelConfig> model = readable(others);
  std::vector<std::string> faults;
  if (given == nullptr || !model) return faults;
  const Json* theta = find_set(settings, kTheta);
  const Json* inner = find_set(*given, kTheta);
  if (theta != nullptr && inner != nullptr && *theta != *inner)
    faults.push_back(fmt::format("rope_theta: {} contradicts model.rope_theta {}", inner->dump(), theta->dump()));
  check_factor(*given, faults);
  Json merged = config;
  override_rope(settings, merged);
  ModelConfig changed = *model;
  constexpr std::string_view kSource = "model";
  ConfigReader in(merged, kSource);
  changed.max_position_embeddings = in.integer(kLength, changed.max_position_embeddings, 1, kMaxDimension);
  read_ropes(in, kSource, find_model_family(model->architecture)->defaults, changed);
  for (const std::string& fault : in.faults()) {
    const std::size_t key = fault.find("rope_"), end = key == std::string::npos ? key : fault.find(": ", key);
    faults.push_back(end == std::string::npos ? fault : fault.substr(end + 2));
  }
  const std::int64_t original = unscaled_length(changed);
  if (faults.empty() && changed.rope.type != RopeScaling::Type::standard && original > changed.max_position_embeddings)
    faults.push_back(fmt::format("original_max_position_embeddings: {} exceeds max_position_embeddings {}", original,
                                 changed.max_position_embeddings));
  return faults;
}

bool same_ropes(const ModelConfig& a, const ModelConfig& b) {
  const auto is_dynamic = [](const RopeScaling& rope) { return rope.type == RopeScaling::Type::dynamic; };
  return a.rope == b.rope && a.local_rope == b.local_rope &&
         (!is_dynamic(a.rope) || a.max_position_embeddings == b.max_position_embeddings);
}

}  // namespace quench::nn
