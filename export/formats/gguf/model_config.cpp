#include "export/formats/gguf/model_config.h"

#include <algorithm>

#include "core/tensor/tensor.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/rope.h"
#include "export/formats/gguf/types.h"
#include "nn/spec/model_family.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

const GgufEntry* find_tensor(const GgufHead& head, std::string_view name) {
  const auto found = std::ranges::find(head.tensors, name, &GgufEntry::name);
  return found == head.tensors.end() ? nullptr : &*found;
}

std::vector<float> read_divisors(const fs::path& file, const GgufHead& head, std::string_view name,
                                 std::int64_t count) {
  const GgufEntry* entry = find_tensor(head, name);
  if (entry == nullptr) return {};
  QUENCH_CHECK_AS(
      ErrorCode::unsupported, gguf_type_layout(entry->type)->plain == DType::f32 && entry->shape == Shape({count}),
      "{}: {} has shape {}, expected {} numbers in f32", file.string(), entry->name, entry->shape.to_string(), count);
  const Tensor values = Tensor::empty(entry->shape, DType::f32);
  read_gguf_tensor(file, *entry, values);
  std::vector<float> divisors(values.data<float>(), values.data<float>() + count);
  for (const float divisor : divisors)
    QUENCH_CHECK_AS(ErrorCode::corrupt, divisor > 0 && divisor < 1e9f, "{}: {} holds {}", file.string(), entry->name,
                    divisor);
  return divisors;
}

// They change values without a config.json equivalent.
void refuse_others(const GgufFields& fields, std::int64_t context, const GgufArchitecture& architecture) {
  constexpr std::string_view kWindow = "attention.sliding_window";
  const std::int64_t window = fields.find_integer(kWindow).value_or(0);
  QUENCH_CHECK_AS(ErrorCode::unsupported, architecture.sliding_window || window == 0 || window >= context,
                  "{}: {} is {}; put the model's config.json into the file's folder", fields.source(),
                  fields.name(kWindow), window);
  for (const std::string_view key : {"attention.scale", "logit_scale", "residual_scale", "embedding_scale"})
    QUENCH_CHECK_AS(ErrorCode::unsupported, architecture.scales || fields.find(key) == nullptr,
                    "{}: {} is not supported", fields.source(), fields.name(key));
}

constexpr std::string_view kRotated = "rope.dimension_count";

// Variant of an architecture that is known with experts alone, or without.
std::string_view variant_of(const GgufHead& head, const std::string& name, const std::string& source) {
  if (!std::ranges::any_of(gguf_architectures(), [&](const auto& known) { return known.name == name; })) return "";
  const bool experts = GgufFields(head, name + ".", source).find_integer("expert_count").value_or(0) > 0;
  return experts ? " with experts" : " without experts";
}

std::int64_t head_dim_of(const GgufFields& fields, std::int64_t hidden, std::int64_t heads, bool partial_rotation) {
  const auto written = fields.find_integer("attention.key_length");
  QUENCH_CHECK_AS(ErrorCode::corrupt, written || hidden % heads == 0,
                  "{}: {} {} is not a multiple of {} heads, and there is no {}", fields.source(),
                  fields.name("embedding_length"), hidden, heads, fields.name("attention.key_length"));
  const std::int64_t size = written ? *written : hidden / heads;
  for (const std::string_view key : {std::string_view("attention.value_length"), kRotated}) {
    if (partial_rotation && key == kRotated) continue;
    const std::int64_t other = fields.find_integer(key).value_or(size);
    QUENCH_CHECK_AS(ErrorCode::unsupported, other == size,
                    "{}: {} is {}, but heads have {} elements; only equal sizes "
                    "are supported",
                    fields.source(), fields.name(key), other, size);
  }
  return size;
}

// Embedding rows; all token counts must match.
std::int64_t vocabulary_of(const GgufHead& head, const GgufFields& fields, const GgufFields& tokenizer) {
  const GgufEntry* embedding = find_tensor(head, "token_embd.weight");
  QUENCH_CHECK_AS(ErrorCode::unsupported, embedding != nullptr && embedding->shape.rank() == 2,
                  "{}: it has no token_embd.weight", fields.source());
  const std::int64_t rows = embedding->shape[0];
  const std::int64_t written = fields.find_integer("vocab_size").value_or(rows);
  QUENCH_CHECK_AS(ErrorCode::corrupt, written == rows, "{}: {} is {}, but token_embd.weight has {} rows",
                  fields.source(), fields.name("vocab_size"), written, rows);
  const Json* tokens = tokenizer.find("tokens");
  if (tokens == nullptr) return rows;
  QUENCH_CHECK_AS(ErrorCode::corrupt, tokens->is_array(), "{}: {} is no list", fields.source(),
                  tokenizer.name("tokens"));
  QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::int64_t>(tokens->as_array().size()) == rows,
                  "{}: {} has {} tokens, but token_embd.weight {} rows", fields.source(), tokenizer.name("tokens"),
                  tokens->as_array().size(), rows);
  return rows;
}

void set_token_ids(const GgufFields& tokenizer, std::int64_t vocabulary, Json& config) {
  const auto set = [&](std::string_view member, std::initializer_list<std::string_view> keys) {
    Json::Array ids;
    for (const std::string_view key : keys) {
      const auto id = tokenizer.find_integer(key);
      if (!id) continue;
      QUENCH_CHECK_AS(ErrorCode::corrupt, *id < vocabulary, "{}: {} is {}, outside the vocabulary of {}",
                      tokenizer.source(), tokenizer.name(key), *id, vocabulary);
      if (std::ranges::find(ids, Json(*id)) == ids.end()) ids.emplace_back(*id);
    }
    if (ids.size() == 1) config.set(member, ids.front());
    if (ids.size() > 1) config.set(member, std::move(ids));
  };
  set("bos_token_id", {"bos_token_id"});
  set("eos_token_id", {"eos_token_id", "eot_token_id", "eom_token_id"});
  set("pad_token_id", {"padding_token_id"});
}

}  // namespace

Json gguf_model_config(const fs::path& file) {
  const GgufHead head = read_gguf_head(file);
  const std::string source = file.string();
  const auto name = GgufFields(head, "general.", source).find_text("architecture");
  QUENCH_CHECK_AS(ErrorCode::unsupported, name.has_value(), "{}: it has no general.architecture", source);
  const GgufArchitecture* architecture = stored_gguf_architecture(head);
  const nn::ModelFamily* family = architecture != nullptr ? nn::find_model_family(architecture->model_type) : nullptr;
  QUENCH_CHECK_AS(ErrorCode::unsupported, family != nullptr,
                  "{}: general.architecture '{}'{} is not supported; known: {}", source, *name,
                  variant_of(head, *name, source), gguf_architecture_names());
  const GgufFields fields(head, std::string(architecture->name) + ".", source);
  const GgufFields tokenizer(head, "tokenizer.ggml.", source);
  const std::int64_t hidden = fields.integer("embedding_length"), heads = fields.integer("attention.head_count");
  const std::int64_t context = fields.integer("context_length");
  const std::int64_t head_dim = architecture->latent_attention
                                    ? fields.integer("rope.dimension_count")
                                    : head_dim_of(fields, hidden, heads, architecture->partial_rotation);
  refuse_others(fields, context, *architecture);
  if (architecture->experts) (void)fields.integer("expert_used_count");
  const std::int64_t vocabulary = vocabulary_of(head, fields, tokenizer);
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{family->architecture}));
  config.set("model_type", family->model_type);
  config.set("vocab_size", vocabulary);
  config.set("hidden_size", hidden);
  config.set("intermediate_size", fields.integer("feed_forward_length"));
  config.set("num_hidden_layers", fields.integer("block_count"));
  config.set("num_attention_heads", heads);
  config.set("num_key_value_heads",
             architecture->latent_attention ? heads : fields.find_integer("attention.head_count_kv").value_or(heads));
  config.set("head_dim", head_dim);
  config.set("max_position_embeddings", context);
  config.set("rms_norm_eps", fields.number("attention.layer_norm_rms_epsilon"));
  config.set("hidden_act", family->defaults.hidden_act);
  config.set("tie_word_embeddings", find_tensor(head, "output.weight") == nullptr);
  if (architecture->bias_is_chosen) config.set("attention_bias", find_tensor(head, "blk.0.attn_q.bias") != nullptr);
  if (find_tensor(head, "blk.0.ffn_up.bias") != nullptr) config.set("mlp_bias", true);
  set_token_ids(tokenizer, vocabulary, config);
  config.set("torch_dtype", "float32");
  if (architecture->read != nullptr)
    architecture->read(
        [&](std::string_view key) {
          const Json* value = fields.find(key);
          if (value != nullptr && value->is_bool()) return std::optional<double>(*value == Json(true) ? 1.0 : 0.0);
          return fields.find_number(key);
        },
        config);
  const std::int64_t rotated = fields.find_integer(kRotated).value_or(head_dim);
  if (architecture->partial_rotation)
    config.set("partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(head_dim));
  const auto divisors = [&](std::string_view tensor) { return read_divisors(file, head, tensor, rotated / 2); };
  read_gguf_rope(
      fields, {.all = divisors(kRopeDivisors), .shorter = divisors(kShortDivisors), .longer = divisors(kLongDivisors)},
      config);
  if (const Json* scaling = config.find("rope_scaling"); scaling != nullptr && architecture->unrounded_yarn) {
    Json whole = *scaling;
    whole.set("truncate", fields.find_flag(kGgufYarnTruncated).value_or(false));
    config.set("rope_scaling", std::move(whole));
  } else if (architecture->unrounded_yarn) {  // the family's default is a scaling
    config.set("rope_scaling", Json::Object{{"rope_type", "default"}});
  }
  return config;
}

}  // namespace quench
