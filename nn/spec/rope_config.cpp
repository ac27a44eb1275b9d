#include "nn/spec/rope_config.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace quench::nn {

std::string_view rope_key(const Json& json) {
  const Json* scaling = json.find("rope_scaling");
  if (scaling != nullptr && !scaling->is_null() && !(scaling->is_object() && scaling->as_object().empty()))
    return "rope_scaling";
  const Json* parameters = json.find("rope_parameters");
  return parameters != nullptr && !parameters->is_null() ? "rope_parameters" : "";
}

namespace {

constexpr std::string_view kOldLongropes[] = {"su", "yarn"}, kLongrope = "longrope";  // older names in configs of Phi-3

}  // namespace

std::string rope_type_name(const Json& settings, const ModelDefaults& defaults) {
  for (const std::string_view key : {"rope_type", "type"}) {
    const Json* name = settings.find(key);
    if (name == nullptr || !name->is_string()) continue;
    const bool old =
        defaults.old_longrope && std::ranges::find(kOldLongropes, name->as_string()) != std::end(kOldLongropes);
    return old ? std::string(kLongrope) : name->as_string();
  }
  return "default";
}

namespace {

constexpr std::array<std::pair<std::string_view, RopeScaling::Type>, 6> kRopeTypes = {
    {{"default", RopeScaling::Type::standard},
     {"linear", RopeScaling::Type::linear},
     {"dynamic", RopeScaling::Type::dynamic},
     {"yarn", RopeScaling::Type::yarn},
     {"llama3", RopeScaling::Type::llama3},
     {"longrope", RopeScaling::Type::longrope}}};

constexpr std::int64_t kPhi3Original = 4096;  // default of Transformers' Phi3Config

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

std::vector<double> read_factors(ConfigReader& in, std::string_view key, std::int64_t pairs) {
  const auto wrong = [&](const std::string& found) {
    in.fault(key,
             fmt::format("expected a list of {} positive numbers, one a pair of rotated elements, {}", pairs, found));
    return std::vector<double>(static_cast<std::size_t>(pairs), 1.0);
  };
  const Json* list = in.find(key);
  if (list == nullptr) return wrong("it is missing");
  if (!list->is_array()) return wrong(fmt::format("got {}", list->type_name()));
  if (static_cast<std::int64_t>(list->as_array().size()) != pairs)
    return wrong(fmt::format("got {} of them", list->as_array().size()));
  std::vector<double> factors;
  for (const Json& factor : list->as_array()) {
    if (!factor.is_number() || !(factor.as_double() > 0) || !std::isfinite(factor.as_double()))
      return wrong(fmt::format("got {}", factor.dump()));
    factors.push_back(factor.as_double());
  }
  return factors;
}

// As Transformers: the original length is a member of config.json (of Phi3Config always), else of the settings, else
// the longest sequence.
void read_longrope(ConfigReader& top, ConfigReader& inner, const ModelDefaults& defaults, const ModelConfig& c,
                   RopeScaling& rope) {
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const std::int64_t longest = std::max<std::int64_t>(2, c.max_position_embeddings);
  const std::int64_t otherwise =
      defaults.old_longrope ? kPhi3Original : inner.integer(kOriginal, longest, 2, kMaxDimension);
  rope.original_max_position_embeddings = top.integer(kOriginal, otherwise, 2, kMaxDimension);
  const std::int64_t inside = inner.integer(kOriginal, rope.original_max_position_embeddings, 1, kMaxDimension);
  if (inside != rope.original_max_position_embeddings)
    inner.fault(kOriginal, fmt::format("{} contradicts {}, which Transformers takes from outside of it", inside,
                                       rope.original_max_position_embeddings));
  rope.attention_factor = optional_number(inner, "attention_factor");
  if (inner.find("factor") == nullptr)
    rope.factor =
        static_cast<double>(c.max_position_embeddings) / static_cast<double>(rope.original_max_position_embeddings);
  const std::int64_t pairs = rope.rotated(c.head_dim) / 2;
  rope.short_factors = read_factors(inner, "short_factor", pairs);
  rope.long_factors = read_factors(inner, "long_factor", pairs);
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

// As in Transformers, the member of the settings before that of config.json.
double read_partial_rotary(ConfigReader& in, const ModelDefaults& defaults, double otherwise, std::int64_t head_dim) {
  constexpr std::string_view kPartial = "partial_rotary_factor";
  const double factor = in.number(kPartial, otherwise, true);
  if (defaults.partial_rotary_factor == 0.0) {
    if (factor != 1)
      in.fault(kPartial, fmt::format("{} is not supported: whole heads are rotated in this family", factor));
    return 1.0;
  }
  const RopeScaling rope{.partial_rotary_factor = factor};
  if (factor <= 1 && rope.rotated(head_dim) >= 2 && rope.rotated(head_dim) % 2 == 0) return factor;
  in.fault(kPartial, fmt::format("{} rotates {} of {} elements of a head; expected an even number of them", factor,
                                 rope.rotated(head_dim), head_dim));
  return 1.0;
}

RopeScaling read_rope(ConfigReader& top, const Json& json, std::string_view source, const ModelDefaults& defaults,
                      double theta, const ModelConfig& c) {
  RopeScaling rope;
  const std::int64_t max_positions = c.max_position_embeddings;
  const double rotated_share = defaults.partial_rotary_factor > 0 ? defaults.partial_rotary_factor : 1.0;
  rope.partial_rotary_factor = read_partial_rotary(top, defaults, rotated_share, c.head_dim);
  rope.theta = top.number("rope_theta", theta, true);
  const std::string_view key = rope_key(json);
  if (key.empty()) return rope;
  const Json* settings = json.find(key);
  if (!settings->is_object()) {
    top.fault(key, fmt::format("expected an object, got {}", settings->type_name()));
    return rope;
  }
  const std::string inner_source = fmt::format("{}: {}", source, key);
  ConfigReader inner(*settings, inner_source);
  rope.theta = inner.number("rope_theta", rope.theta, true);
  if (key == "rope_scaling") check_overridden_theta(top, json, rope.theta);
  rope.partial_rotary_factor = read_partial_rotary(inner, defaults, rope.partial_rotary_factor, c.head_dim);
  (void)inner.string("rope_type", inner.string("type", ""));  // faults of other JSON types
  const std::string name = rope_type_name(*settings, defaults);
  const auto type = std::ranges::find(kRopeTypes, std::string_view(name), &decltype(kRopeTypes)::value_type::first);
  // Transformers reads the original length outside of the settings, which are by layer type where there are local ones.
  const bool by_layer = defaults.local_rope_theta > 0;
  if (type == kRopeTypes.end() || (type->second == RopeScaling::Type::longrope && by_layer)) {
    std::string known;
    for (const auto& [each, value] : kRopeTypes)
      if (value != RopeScaling::Type::longrope || !by_layer)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", each);
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
  } else if (rope.type == RopeScaling::Type::longrope) {
    read_longrope(top, inner, defaults, c, rope);
  }
  top.take_faults(inner);
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
    const RopeScaling rope = read_rope(layer, json, source, defaults, theta, c);
    in.take_faults(layer);
    return rope;
  };
  if (by_type) {
    Json full = of(kFullLayers);
    if (const Json* scaling = in.find("rope_scaling"); scaling != nullptr && scaling->is_object())
      for (const auto& [name, value] : scaling->as_object()) full.set(name, value);
    c.rope = read(std::move(full), defaults.rope_theta);
  } else {
    c.rope = read_rope(in, in.json(), source, defaults, defaults.rope_theta, c);
  }
  Json local = of(kWindowedLayers);
  if (local.find("rope_theta") == nullptr)
    local.set("rope_theta", in.number("rope_local_base_freq", defaults.local_rope_theta, true));
  c.local_rope = read(std::move(local), defaults.local_rope_theta);
}

Json list_of(const std::vector<double>& numbers) {
  Json list = Json::array();
  for (const double number : numbers) list.push_back(Json(number));
  return list;
}

}  // namespace

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
  } else if (rope.type == RopeScaling::Type::longrope) {
    if (rope.attention_factor) json.set("attention_factor", *rope.attention_factor);
    json.set("short_factor", list_of(rope.short_factors));
    json.set("long_factor", list_of(rope.long_factors));
  }
  return json;
}

void read_ropes(ConfigReader& in, std::string_view source, const ModelDefaults& defaults, ModelConfig& c) {
  if (defaults.local_rope_theta > 0)
    read_layer_ropes(in, source, defaults, c);
  else
    c.rope = read_rope(in, in.json(), source, defaults, defaults.rope_theta, c);
}

namespace {

// Transformers 4 accepts no further members of rope_scaling with Phi-3, and reads the lengths outside of it.
Json old_longrope(const ModelConfig& c) {
  const RopeScaling& rope = c.rope;
  Json old = Json::object();
  old.set("type", kLongrope);
  old.set("short_factor", list_of(rope.short_factors));
  old.set("long_factor", list_of(rope.long_factors));
  if (rope.attention_factor) old.set("attention_factor", *rope.attention_factor);
  if (rope.factor !=
      static_cast<double>(c.max_position_embeddings) / static_cast<double>(rope.original_max_position_embeddings))
    old.set("factor", rope.factor);
  return old;
}

}  // namespace

void write_ropes(const ModelConfig& c, Json& json) {
  // Transformers 5 uses rope_parameters, older readers rope_theta and rope_scaling.
  json.set("rope_theta", c.rope.theta);
  Json scaling = rope_json(c.rope);
  const ModelFamily* family = find_model_family(c.architecture);
  if (family != nullptr && family->defaults.partial_rotary_factor > 0) {
    json.set("partial_rotary_factor", c.rope.partial_rotary_factor);
    scaling.set("partial_rotary_factor", c.rope.partial_rotary_factor);
  }
  if (c.rope.type == RopeScaling::Type::longrope) {
    json.set("original_max_position_embeddings", c.rope.original_max_position_embeddings);
    json.set("rope_scaling", old_longrope(c));
  } else if (c.rope.type != RopeScaling::Type::standard) {
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
