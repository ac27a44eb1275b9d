#include "nn/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "nn/config_reader.h"
#include "nn/model_fields.h"
#include "nn/models/table.h"

namespace quench::nn {
namespace {

// By class name, which model_type must not contradict; by model_type without one.
const ModelFamily& family_of(const Json& json, std::string_view source) {
  std::string name;
  const Json* architectures = json.find("architectures");
  const Json* type = json.find("model_type");
  const bool typed = type != nullptr && type->is_string();
  if (architectures != nullptr && architectures->is_array() && !architectures->as_array().empty() &&
      architectures->as_array().front().is_string()) {
    name = architectures->as_array().front().as_string();
  } else if (typed) {
    name = type->as_string();
  }
  const ModelFamily* family = find_model_family(name);
  if (family == nullptr) {
    std::string known;
    for (const ModelFamily& one : model_families())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", one.architecture);
    QUENCH_FAIL(ErrorCode::unsupported, "{}: architecture '{}' is not supported; known: {}", source, name, known);
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !typed || type->as_string() == family->model_type,
                  "{}: model_type '{}' contradicts architectures [\"{}\"], which are of type '{}'", source,
                  type->as_string(), name, family->model_type);
  return *family;
}

// As in Transformers: rope_scaling unless absent, null or empty, else rope_parameters. Empty if neither exists.
std::string_view rope_key(const Json& json) {
  const Json* scaling = json.find("rope_scaling");
  if (scaling != nullptr && !scaling->is_null() && !(scaling->is_object() && scaling->as_object().empty()))
    return "rope_scaling";
  const Json* parameters = json.find("rope_parameters");
  return parameters != nullptr && !parameters->is_null() ? "rope_parameters" : "";
}

// Rejects unsupported members that change the computation; records unknown ones.
void check_fields(ConfigReader& in, const Json& json, const ModelFamily& family, ModelConfig& config) {
  for (const auto& [name, value] : json.as_object()) {
    if (find_model_field(name) == nullptr) config.unknown_fields.push_back(name);
    if (const std::string refusal = field_refusal(&family, name, value); !refusal.empty()) in.fault(name, refusal);
  }
  const std::string_view applies = rope_key(json);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const Json* settings = in.find(key);
    if (settings == nullptr || !settings->is_object()) continue;
    for (const auto& [name, value] : settings->as_object()) {
      std::string refusal = field_refusal(&family, name, value);
      if (value.is_object() && family.defaults.local_rope_theta == 0)
        refusal = key == applies ? "this family has one setting for all layers" : "";
      if (!refusal.empty()) in.fault(key, fmt::format("{}: {}", name, refusal));
    }
  }
}

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

void check_geometry(ConfigReader& in, const ModelConfig& c) {
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    in.fault("num_key_value_heads", fmt::format("{} query heads are not a multiple of {} key-value heads",
                                                c.num_attention_heads, c.num_key_value_heads));
  if (c.experts.count > 0 && c.experts.per_token > c.experts.count)
    in.fault("num_experts_per_tok",
             fmt::format("{} experts for each token of a model with {}", c.experts.per_token, c.experts.count));
  if (c.head_dim % 2 != 0) in.fault("head_dim", fmt::format("{} is odd; rotary embedding needs pairs", c.head_dim));
  for (const std::int64_t id : c.eos_token_ids)
    if (id >= c.vocab_size)
      in.fault("eos_token_id", fmt::format("{} is outside the vocabulary of {}", id, c.vocab_size));
  std::int64_t expert_rows = 0;
  if (__builtin_mul_overflow(c.experts.count, std::max(2 * c.experts.intermediate_size, c.hidden_size), &expert_rows))
    in.fault("num_experts", "the weights' sizes overflow");
  const std::int64_t rows = std::max({c.vocab_size, 2 * c.intermediate_size, c.hidden_size, expert_rows});
  std::int64_t largest = 0;
  if (__builtin_mul_overflow(rows, c.hidden_size, &largest) ||
      __builtin_mul_overflow(largest, std::int64_t{64}, &largest))
    in.fault("hidden_size", "the weights' sizes overflow");
  const auto width = static_cast<double>(c.hidden_size);
  const double inner =
      std::max(static_cast<double>(c.intermediate_size),
               static_cast<double>(c.experts.count) * static_cast<double>(c.experts.intermediate_size));
  const double layer =
      width * (2 * static_cast<double>((c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim) + 3 * inner);
  if (static_cast<double>(c.num_hidden_layers) * layer > 0x1p58)
    in.fault("num_hidden_layers", "the weights' sizes overflow");
}

}  // namespace

ModelConfig parse_model_config(const Json& json, std::string_view source) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, json.is_object(), "{}: expected a JSON object, got {}", source,
                  json.type_name());
  const ModelFamily& family = family_of(json, source);
  const ModelDefaults& defaults = family.defaults;
  const auto known_size = [](std::int64_t size) { return size > 0 ? std::optional(size) : std::nullopt; };
  ConfigReader in(json, source);
  ModelConfig c;
  c.architecture = family.architecture;
  c.model_type = family.model_type;
  c.vocab_size = in.integer("vocab_size", known_size(defaults.vocab_size), 1, kMaxDimension);
  c.hidden_size = in.integer("hidden_size", known_size(defaults.hidden_size), 1, kMaxDimension);
  c.intermediate_size = in.integer("intermediate_size", known_size(defaults.intermediate_size), 1, kMaxDimension);
  c.num_hidden_layers = in.integer("num_hidden_layers", known_size(defaults.num_hidden_layers), 1, 10000);
  c.num_attention_heads = in.integer("num_attention_heads", known_size(defaults.num_attention_heads), 1, 65536);
  c.num_key_value_heads = in.integer(
      "num_key_value_heads", known_size(defaults.num_key_value_heads).value_or(c.num_attention_heads), 1, 65536);
  if (in.find("head_dim") != nullptr) {
    c.head_dim = in.integer("head_dim", std::nullopt, 2, 65536);
  } else if (defaults.head_dim > 0) {
    c.head_dim = defaults.head_dim;
  } else {
    if (c.hidden_size % c.num_attention_heads != 0)
      in.fault("num_attention_heads",
               fmt::format("hidden_size {} is not a multiple of {} heads", c.hidden_size, c.num_attention_heads));
    c.head_dim = std::max<std::int64_t>(1, c.hidden_size / c.num_attention_heads);
  }
  c.max_position_embeddings = in.integer("max_position_embeddings", defaults.max_position_embeddings, 1, kMaxDimension);
  c.rms_norm_eps = static_cast<float>(in.number("rms_norm_eps", defaults.rms_norm_eps, true));
  c.initializer_range = static_cast<float>(in.number("initializer_range", 0.02, true));
  c.tie_word_embeddings = in.boolean("tie_word_embeddings", defaults.tie_word_embeddings);
  if (defaults.local_rope_theta > 0)
    read_layer_ropes(in, source, defaults, c);
  else
    c.rope = read_rope(in, json, source, c.max_position_embeddings, defaults.rope_theta);
  const std::string_view known = defaults.hidden_act;
  if (const std::string activation = in.string("hidden_act", std::string(known)); activation != known)
    in.fault("hidden_act", fmt::format("'{}' is not supported; known: {}", activation, known));
  const std::string dtype = in.string("dtype", in.string("torch_dtype", "float32"));
  const auto parsed = dtype_from_string(dtype);
  if (parsed == DType::f32 || parsed == DType::bf16 || parsed == DType::f16) {
    c.dtype = *parsed;
  } else {
    in.fault("dtype", fmt::format("'{}' is not supported; known: float32, bfloat16, float16", dtype));
  }
  c.eos_token_ids = in.ids("eos_token_id");
  if (const auto ids = in.ids("bos_token_id"); !ids.empty()) c.bos_token_id = ids.front();
  if (const auto ids = in.ids("pad_token_id"); !ids.empty()) c.pad_token_id = ids.front();
  const bool kinds_of_layers = family.has_member("layer_types");
  if (const Json* layers = in.find("layer_types"); !kinds_of_layers && layers != nullptr && layers->is_array()) {
    for (const Json& layer : layers->as_array())
      if (!layer.is_string() || layer.as_string() != "full_attention")
        in.fault("layer_types", fmt::format("{} is not supported; known: full_attention", layer.dump()));
  }
  check_fields(in, json, family, c);
  family.apply(in, c);
  check_geometry(in, c);
  if (!in.faults().empty()) {
    std::string message;
    for (const std::string& fault : in.faults()) message += (message.empty() ? "" : "\n") + fault;
    QUENCH_FAIL(ErrorCode::bad_config, "{}", message);
  }
  c.source = json;
  return c;
}

BlockSpec ModelConfig::block(std::int64_t layer) const {
  const ModelFamily* family = find_model_family(architecture);
  QUENCH_CHECK(family != nullptr, "no model family is called '{}'", architecture);
  return family->block(*this, layer);
}

std::vector<BlockSpec> ModelConfig::blocks() const {
  std::vector<BlockSpec> all;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) all.push_back(block(layer));
  return all;
}

StreamSpec ModelConfig::stream() const {
  const ModelFamily* family = find_model_family(architecture);
  if (family != nullptr && family->stream != nullptr) return family->stream(*this);
  return {.norm = {"norm", rms_norm_eps}};
}

std::int64_t ModelConfig::context_length() const {
  if (rope.type != RopeScaling::Type::dynamic) return max_position_embeddings;
  const double extended = static_cast<double>(max_position_embeddings) * std::max(1.0, rope.factor);
  return static_cast<std::int64_t>(std::min(extended, static_cast<double>(kMaxDimension)));
}

namespace {

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

Json to_hf_json(const ModelConfig& c, DType dtype) {
  const ModelFamily* family = find_model_family(c.architecture);
  Json json = c.source.is_object() ? c.source : Json::object();
  json.set("architectures", Json(Json::Array{Json(c.architecture)}));
  json.set("model_type", c.model_type);
  json.set("vocab_size", c.vocab_size);
  json.set("hidden_size", c.hidden_size);
  json.set("intermediate_size", c.intermediate_size);
  json.set("num_hidden_layers", c.num_hidden_layers);
  json.set("num_attention_heads", c.num_attention_heads);
  json.set("num_key_value_heads", c.num_key_value_heads);
  json.set("head_dim", c.head_dim);
  json.set("hidden_act", family != nullptr ? family->defaults.hidden_act : ModelDefaults().hidden_act);
  json.set("max_position_embeddings", c.max_position_embeddings);
  json.set("rms_norm_eps", std::stod(fmt::format("{}", c.rms_norm_eps)));
  json.set("initializer_range", std::stod(fmt::format("{}", c.initializer_range)));
  json.set("tie_word_embeddings", c.tie_word_embeddings);
  if (family != nullptr && family->write != nullptr) family->write(c, json);
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
  const std::string name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  json.set("dtype", name);
  json.set("torch_dtype", name);
  if (c.bos_token_id) json.set("bos_token_id", *c.bos_token_id);
  if (c.pad_token_id) json.set("pad_token_id", *c.pad_token_id);
  if (c.eos_token_ids.size() == 1) json.set("eos_token_id", c.eos_token_ids.front());
  if (c.eos_token_ids.size() > 1) {
    Json ids = Json::array();
    for (const std::int64_t id : c.eos_token_ids) ids.push_back(id);
    json.set("eos_token_id", std::move(ids));
  }
  return json;
}

}  // namespace quench::nn
