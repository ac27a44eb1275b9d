#include "nn/spec/model_config.h"

#include <algorithm>
#include <tuple>

#include "nn/spec/config_reader.h"
#include "nn/spec/model_family.h"
#include "nn/spec/model_fields.h"
#include "nn/spec/rope_config.h"

namespace quench::nn {
namespace {

// "; nearest: Gemma3ForCausalLM, which lacks use_mrope": the family whose class name begins most alike, and the members
// of `json` that it refuses.
std::string nearest_family(const Json& json, std::string_view name) {
  constexpr std::size_t kShortest = 4, kShown = 4;  // characters, members
  const auto same = [name](std::string_view known) {
    return static_cast<std::size_t>(std::ranges::mismatch(known, name).in1 - known.begin());
  };
  const auto families = model_families();
  const auto best =
      std::ranges::max_element(families, {}, [&](const ModelFamily& one) { return same(one.architecture); });
  if (same(best->architecture) < kShortest) return "";
  std::string lacks;
  std::size_t count = 0;
  for (const auto& [member, value] : json.as_object())
    if (!field_refusal(&*best, member, value).empty() && count++ < kShown)
      lacks += fmt::format("{}{}", lacks.empty() ? "" : ", ", member);
  if (count > kShown) lacks += fmt::format(" and {} more", count - kShown);
  return fmt::format("; nearest: {}{}{}", best->architecture, lacks.empty() ? "" : ", which does not execute ", lacks);
}

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
    QUENCH_FAIL(ErrorCode::unsupported, "{}: architecture '{}' is not supported; known: {}{}", source, name, known,
                nearest_family(json, name));
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, !typed || type->as_string() == family->model_type,
                  "{}: model_type '{}' contradicts architectures [\"{}\"], which are of type '{}'", source,
                  type->as_string(), name, family->model_type);
  return *family;
}

// Rejects unsupported members that change the computation; records unknown ones.
void check_fields(ConfigReader& in, const Json& json, const ModelFamily& family, ModelConfig& config) {
  for (const auto& [name, value] : json.as_object()) {
    const bool is_private = name.starts_with('_');  // member of Transformers' own classes
    if (!is_private && find_model_field(name) == nullptr) config.unknown_fields.push_back(name);
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
  if (static_cast<double>(c.num_hidden_layers + c.mtp.declared) * layer > 0x1p58)
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
  read_ropes(in, source, defaults, c);
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
  c.stream.norm = {"norm", c.rms_norm_eps};
  family.apply(in, c);
  check_geometry(in, c);
  if (!in.faults().empty()) {
    std::string message;
    for (const std::string& fault : in.faults()) message += (message.empty() ? "" : "\n") + fault;
    QUENCH_FAIL(ErrorCode::bad_config, "{}", message);
  }
  QUENCH_CHECK(std::ssize(c.blocks) == c.num_hidden_layers, "model family {}: {} blocks of {} layers",
               family.model_type, c.blocks.size(), c.num_hidden_layers);
  c.source = json;
  return c;
}

const BlockSpec& ModelConfig::block(std::int64_t layer) const {
  QUENCH_CHECK(layer >= 0 && layer < std::ssize(blocks), "layer {} of a model with {}", layer, blocks.size());
  return blocks[static_cast<std::size_t>(layer)];
}

std::vector<BlockSpec> ModelConfig::mtp_blocks() const {
  std::vector<BlockSpec> all(static_cast<std::size_t>(mtp.layers), mtp.block);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].layer = num_hidden_layers + static_cast<std::int64_t>(i);
  return all;
}

std::int64_t ModelConfig::sparse_layers() const {
  return std::ranges::count_if(blocks, [](const BlockSpec& block) { return block.feed_forward.experts.has_value(); });
}

std::int64_t ModelConfig::routed_layers() const {
  return sparse_layers() + (mtp.block.feed_forward.experts ? mtp.layers : 0);
}

std::int64_t ModelConfig::context_length() const {
  if (rope.type != RopeScaling::Type::dynamic) return max_position_embeddings;
  const double extended = static_cast<double>(max_position_embeddings) * std::max(1.0, rope.factor);
  return static_cast<std::int64_t>(std::min(extended, static_cast<double>(kMaxDimension)));
}

bool ModelConfig::computes_as(const ModelConfig& other) const {
  const auto values = [](const ModelConfig& c) {
    return std::tie(c.vocab_size, c.hidden_size, c.rms_norm_eps, c.tie_word_embeddings, c.router_balance_loss, c.blocks,
                    c.mtp, c.stream);
  };
  return values(*this) == values(other);
}

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
  write_ropes(c, json);
  if (family != nullptr && family->write != nullptr) family->write(c, json);
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
