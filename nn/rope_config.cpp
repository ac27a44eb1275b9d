#include "nn/rope_config.h"

#include <algorithm>
#include <array>

namespace quench::nn {

std::string_view rope_key(const Json& json) {
  const Json* scaling = json.find("rope_scaling");
  if (scaling != nullptr && !scaling->is_null() && !(scaling->is_object() && scaling->as_object().empty()))
    return "rope_scaling";
  const Json* parameters = json.find("rope_parameters");
  return parameters != nullptr && !parameters->is_null() ? "rope_parameters" : "";
}

namespace {

constexpr std::array<std::pair<std::string_view, RopeScaling::Type>, 5> kRopeTypes = {
    {{"default", RopeScaling::Type::standard},
     {"linear", RopeScaling::Type::linear},
     {"dynamic", RopeScaling::Type::dynamic},
     {"yarn", RopeScaling::Type::yarn},
     {"llama3", RopeScaling::Type::llama3}}};

// Absent, null or, as in Transformers, zero.
std::optional<double> optional_number(ConfigReader& in, std::string_view key) {
  const Json* value = in.find(key);
  if (value == nullptr || (value->is_number() && value->as_double() == 0)) return std::nullopt;
  return in.number(key, 1.0, true);
}

void read_yarn(ConfigReader& in, std::int64_t max_positions, RopeScaling& rope) {
  rope.attention_factor = optional_number(in, "attention_factor");
  rope.mscale = optional_number(in, "mscale");
  rope.mscale_all_dim = optional_number(in, "mscale_all_dim");
  rope.beta_fast = optional_number(in, "beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = optional_number(in, "beta_slow").value_or(rope.beta_slow);
  rope.truncate = in.boolean("truncate", rope.truncate);
  if (rope.beta_fast < rope.beta_slow)
    in.fault("beta_fast", fmt::format("{} is smaller than beta_slow, {}", rope.beta_fast, rope.beta_slow));
  if (in.find("factor") == nullptr)
    rope.factor = static_cast<double>(max_positions) / static_cast<double>(rope.original_max_position_embeddings);
}

// yarn derives the factor from the two lengths.
void require_rope_members(ConfigReader& in, RopeScaling::Type type, std::string_view name) {
  using enum RopeScaling::Type;
  const auto require = [&](std::string_view key) {
    if (in.find(key) == nullptr) in.fault(key, fmt::format("is missing; rotary scaling '{}' needs it", name));
  };
  if (type == linear || type == dynamic || type == llama3) require("factor");
  if (type != llama3) return;
  require("low_freq_factor");
  require("high_freq_factor");
}

// rope_scaling replaces rope_parameters including the base frequency, as in Transformers; losing a frequency is an
// error.
void check_overridden_theta(ConfigReader& top, const Json& json, double theta) {
  const Json* lost = json.find("rope_parameters");
  if (lost == nullptr || !lost->is_object()) return;
  const auto check = [&](const Json& settings) {
    const Json* other = settings.find("rope_theta");
    if (other != nullptr && other->is_number() && other->as_double() != theta)
      top.fault(
          "rope_parameters",
          fmt::format(
              "rope_theta {:.15g} contradicts {:.15g}, which applies with rope_scaling; set rope_theta in rope_scaling "
              "or remove one of the two members",
              other->as_double(), theta));
  };
  check(*lost);
  for (const auto& [layers, settings] : lost->as_object())
    if (settings.is_object()) check(settings);
}

RopeScaling read_rope(ConfigReader& top, const Json& json, std::string_view source, std::int64_t max_positions,
                      double theta) {
  RopeScaling rope;
  if (top.number("partial_rotary_factor", 1.0, true) != 1)
    top.fault("partial_rotary_factor", "only 1 is supported: whole heads are rotated");
  rope.theta = top.number("rope_theta", theta, true);
  const std::string_view key = rope_key(json);
  if (key.empty()) return rope;
  const Json* settings = json.find(key);
  if (!settings->is_object()) {
    top.fault(key, fmt::format("expected an object, got {}", settings->type_name()));
    return rope;
  }
  ConfigReader inner(*settings, source);
  rope.theta = inner.number("rope_theta", rope.theta, true);
  if (key == "rope_scaling") check_overridden_theta(top, json, rope.theta);
  if (inner.number("partial_rotary_factor", 1.0, true) != 1)
    inner.fault("partial_rotary_factor", "only 1 is supported: whole heads are rotated");
  const std::string name = inner.string("rope_type", inner.string("type", "default"));
  const auto type = std::ranges::find(kRopeTypes, std::string_view(name), &decltype(kRopeTypes)::value_type::first);
  if (type == kRopeTypes.end()) {
    std::string known;
    for (const auto& [each, unused] : kRopeTypes) known += fmt::format("{}{}", known.empty() ? "" : ", ", each);
    inner.fault("rope_type", fmt::format("'{}' is not supported; known: {}", name, known));
  } else {
    rope.type = type->second;
  }
  if (rope.type != RopeScaling::Type::standard) rope.factor = inner.number("factor", 1.0, true);
  require_rope_members(inner, rope.type, name);
  if (rope.type == RopeScaling::Type::llama3 || rope.type == RopeScaling::Type::yarn) {
    rope.original_max_position_embeddings =
        inner.integer("original_max_position_embeddings", max_positions, 1, kMaxDimension);
    const std::int64_t outside = top.integer("original_max_position_embeddings", max_positions, 1, kMaxDimension);
    if (inner.find("original_max_position_embeddings") == nullptr && outside != max_positions)
      top.fault("original_max_position_embeddings",
                fmt::format("Transformers reads it in {} and takes {} where it is not there; move it into {}", key,
                            max_positions, key));
  }
  if (rope.type == RopeScaling::Type::llama3) {
    rope.low_freq_factor = inner.number("low_freq_factor", 1.0, true);
    rope.high_freq_factor = inner.number("high_freq_factor", 4.0, true);
    // Equal values (Llama 4 Scout): no blending range.
    if (rope.high_freq_factor < rope.low_freq_factor)
      inner.fault("high_freq_factor", "must not be smaller than low_freq_factor");
  } else if (rope.type == RopeScaling::Type::yarn) {
    read_yarn(inner, max_positions, rope);
  }
  for (const std::string& fault : inner.faults()) top.fault("rope", fault);
  return rope;
}

constexpr std::string_view kFullLayers = "full_attention", kWindowedLayers = "sliding_attention";

// As Transformers' Gemma3TextConfig: rope_parameters by layer type, which rope_scaling overrides for layers with full
// attention; or rope_theta and rope_scaling for those, and rope_local_base_freq.
void read_layer_ropes(ConfigReader& in, std::string_view source, const ModelDefaults& defaults, ModelConfig& c) {
  const Json* parameters = in.find("rope_parameters");
  const auto of = [&](std::string_view type) {
    const Json* settings = parameters != nullptr && parameters->is_object() ? parameters->find(type) : nullptr;
    return settings != nullptr && settings->is_object() ? *settings : Json::object();
  };
  const bool by_type = parameters != nullptr && parameters->is_object() &&
                       (parameters->find(kFullLayers) != nullptr || parameters->find(kWindowedLayers) != nullptr);
  const auto read = [&](Json settings, double theta) {
    Json json = in.json();
    json.erase("rope_scaling");
    json.set("rope_parameters", std::move(settings));
    ConfigReader layer(json, source);
    const RopeScaling rope = read_rope(layer, json, source, c.max_position_embeddings, theta);
    for (const std::string& fault : layer.faults()) in.fault("rope_parameters", fault);
    return rope;
  };
  if (by_type) {
    Json full = of(kFullLayers);
    if (const Json* scaling = in.find("rope_scaling"); scaling != nullptr && scaling->is_object())
      for (const auto& [name, value] : scaling->as_object()) full.set(name, value);
    c.rope = read(std::move(full), defaults.rope_theta);
  } else {
    c.rope = read_rope(in, in.json(), source, c.max_position_embeddings, defaults.rope_theta);
  }
  Json local = of(kWindowedLayers);
  if (local.find("rope_theta") == nullptr)
    local.set("rope_theta", in.number("rope_local_base_freq", defaults.local_rope_theta, true));
  c.local_rope = read(std::move(local), defaults.local_rope_theta);
}

Json rope_json(const RopeScaling& rope) {
  Json json = Json::object();
  json.set("rope_theta", rope.theta);
  const auto type = std::ranges::find(kRopeTypes, rope.type, &decltype(kRopeTypes)::value_type::second);
  json.set("rope_type", type->first);
  if (rope.type == RopeScaling::Type::standard) return json;
  json.set("factor", rope.factor);
  if (rope.original_max_position_embeddings > 0)
    json.set("original_max_position_embeddings", rope.original_max_position_embeddings);
  if (rope.type == RopeScaling::Type::llama3) {
    json.set("low_freq_factor", rope.low_freq_factor);
    json.set("high_freq_factor", rope.high_freq_factor);
  } else if (rope.type == RopeScaling::Type::yarn) {
    if (rope.attention_factor) json.set("attention_factor", *rope.attention_factor);
    if (rope.mscale) json.set("mscale", *rope.mscale);
    if (rope.mscale_all_dim) json.set("mscale_all_dim", *rope.mscale_all_dim);
    json.set("beta_fast", rope.beta_fast);
    json.set("beta_slow", rope.beta_slow);
    json.set("truncate", rope.truncate);
  }
  return json;
}

}  // namespace

void read_ropes(ConfigReader& in, std::string_view source, const ModelDefaults& defaults, ModelConfig& c) {
  if (defaults.local_rope_theta > 0)
    read_layer_ropes(in, source, defaults, c);
  else
    c.rope = read_rope(in, in.json(), source, c.max_position_embeddings, defaults.rope_theta);
}

void write_ropes(const ModelConfig& c, Json& json) {
  // Transformers 5 uses rope_parameters, older readers rope_theta and rope_scaling.
  json.set("rope_theta", c.rope.theta);
  Json scaling = rope_json(c.rope);
  if (c.rope.type != RopeScaling::Type::standard) {
    Json old = scaling;
    old.erase("rope_theta");
    json.set("rope_scaling", std::move(old));
  } else {
    json.erase("rope_scaling");
  }
  if (c.local_rope) {
    Json by_type = Json::object();
    by_type.set(kFullLayers, std::move(scaling));
    by_type.set(kWindowedLayers, rope_json(*c.local_rope));
    scaling = std::move(by_type);
    json.set("rope_local_base_freq", c.local_rope->theta);
  }
  json.set("rope_parameters", std::move(scaling));
}

}  // namespace quench::nn
