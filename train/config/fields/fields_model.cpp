// Section model: origin, and inline Hugging Face config.json fields (transformers: configuration_llama.py,
// configuration_qwen2.py, configuration_qwen3.py), each executed or harmless by nn/spec/model_fields.h; others are
// rejected by name.

#include <algorithm>
#include <functional>

#include "nn/spec/model_family.h"
#include "train/config/fields/section_fields.h"
#include "train/config/fields/tokens_codec.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

constexpr double kMaxExtent = 2147483647.0;

// Stored as JSON; null equals absent, as in transformers.
using Check = std::function<ReadError(const Json& value)>;
void add_architecture_field(Fields& fields, const std::string& key, ValueKind kind, const std::string& type,
                            const Json& schema, ResumePolicy resume, std::string_view help, const Check& check) {
  Field& field = fields.emplace_back();
  field.path = "model." + key;
  field.type = type + " or null";
  field.help = help;
  field.kind = kind;
  field.nullable = true;
  field.architecture = true;
  field.resume = resume;
  field.schema = Json(Json::Object{{"anyOf", Json::Array{schema, Json(Json::Object{{"type", "null"}})}}});
  field.read = [key, check, expected = field.type](const Json& value, RunConfig& config) -> ReadError {
    if (value.is_null()) {
      config.model.fields.erase(key);
      return std::nullopt;
    }
    if (const ReadError error = check(value)) return wrong_value(expected, value, error->suggestion);
    config.model.fields.set(key, value);
    return std::nullopt;
  };
  field.write = [key](const RunConfig& config) -> Json {
    const Json* value = config.model.fields.find(key);
    return value == nullptr ? Json() : *value;
  };
}

template <class T>
[[gnu::noinline]] void add_typed(Fields& fields, const char* key, const ValueRule& rule, ResumePolicy resume,
                                 std::string_view help) {
  add_architecture_field(fields, key, Codec<T>::kind, Codec<T>::type(rule), Codec<T>::schema(rule), resume, help,
                         [rule](const Json& value) {
                           T ignored{};
                           return Codec<T>::read(value, rule, ignored);
                         });
}

void add_object(Fields& fields, const char* key, ResumePolicy resume, std::string_view help) {
  add_architecture_field(fields, key, ValueKind::json, "object", Json(Json::Object{{"type", "object"}}), resume, help,
                         [](const Json& value) -> ReadError {
                           if (!value.is_object()) return wrong_value("object", value);
                           return std::nullopt;
                         });
}

bool is_index(const Json& value) {
  return value.is_integer() && value.as_double() >= 0 && value.as_double() <= kMaxExtent;
}

Json index_schema() {
  return Codec<std::int64_t>::schema(between(0, kMaxExtent));
}

bool is_index_list(const Json& value) {
  return value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(), is_index);
}

Json index_list_schema() {
  return Json(Json::Object{{"type", "array"}, {"items", index_schema()}});
}

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const nn::ModelFamily& family : nn::model_families()) types.emplace_back(family.model_type);
  return types;
}

std::vector<std::string> activations() {
  std::vector<std::string> names;
  for (const nn::ModelFamily& family : nn::model_families())
    if (const std::string name(family.defaults.hidden_act); std::ranges::find(names, name) == names.end())
      names.push_back(name);
  return names;
}

void add_token_ids(Fields& fields, const char* key, std::string_view help) {
  const std::string type = "integer >= 0 or list of them";
  Json schema(Json::Object{{"anyOf", Json::Array{index_schema(), index_list_schema()}}});
  add_architecture_field(fields, key, ValueKind::json, type, schema, ResumePolicy::free, help,
                         [type](const Json& value) -> ReadError {
                           if (!is_index(value) && !is_index_list(value)) return wrong_value(type, value);
                           return std::nullopt;
                         });
}

void add_shape_fields(Fields& fields) {
  using enum ResumePolicy;
  const ValueRule extent = between(1, kMaxExtent);
  using Int = std::int64_t;
  add_typed<std::string>(fields, "model_type", one_of(model_types()), fixed,
                         "Model family; architectures must belong to it.");
  add_typed<std::vector<std::string>>(fields, "architectures", any_value(), free,
                                      "Class names, e.g. LlamaForCausalLM.");
  add_typed<Int>(fields, "vocab_size", extent, fixed, "Vocabulary size: rows of the embedding table.");
  add_typed<Int>(fields, "hidden_size", extent, fixed, "Width of the hidden states.");
  add_typed<Int>(fields, "intermediate_size", extent, fixed, "Width of the feed-forward layer.");
  add_typed<Int>(fields, "num_hidden_layers", between(1, 65536), fixed, "Decoder layers.");
  add_typed<Int>(fields, "num_attention_heads", between(1, 65536), fixed, "Query heads.");
  add_typed<Int>(fields, "num_key_value_heads", between(1, 65536), fixed,
                 "Key and value heads; unset: num_attention_heads.");
  add_typed<Int>(fields, "head_dim", between(2, 65536), fixed,
                 "Width of one head; unset: hidden_size / num_attention_heads.");
  add_typed<std::string>(fields, "hidden_act", one_of(activations()), guarded, "Activation of the gated MLP.");
  add_typed<bool>(fields, "tie_word_embeddings", any_value(), fixed,
                  "The head (lm_head) shares the weight of the embedding table.");
  add_typed<bool>(fields, "attention_bias", any_value(), fixed, "Biases in the attention projections.");
  add_typed<bool>(fields, "mlp_bias", any_value(), fixed, "Biases in the MLP projections.");
}

void add_index_list(Fields& fields, const char* key, ResumePolicy resume, std::string_view help) {
  const std::string type = "list of integers >= 0";
  add_architecture_field(fields, key, ValueKind::json, type, index_list_schema(), resume, help,
                         [type](const Json& value) -> ReadError {
                           if (!is_index_list(value)) return wrong_value(type, value);
                           return std::nullopt;
                         });
}

void add_expert_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  const ValueRule extent = between(1, kMaxExtent);
  add_typed<Int>(fields, "num_local_experts", extent, fixed, "Experts of a layer (Mixtral, Llama 4, gpt-oss).");
  add_typed<Int>(fields, "num_experts", extent, fixed, "Experts of a layer (Qwen2-MoE, Qwen3-MoE).");
  add_typed<Int>(fields, "num_experts_per_tok", extent, guarded, "Experts a token (top k of the router).");
  add_typed<Int>(fields, "moe_intermediate_size", extent, fixed,
                 "Width of one expert (Qwen2-MoE, Qwen3-MoE, DeepSeek-V3).");
  add_typed<bool>(fields, "norm_topk_prob", any_value(), guarded,
                  "Normalize the top-k router weights to sum to 1 (Qwen2-MoE, Qwen3-MoE, DeepSeek-V3).");
  add_typed<Int>(fields, "decoder_sparse_step", extent, fixed, "Every n-th layer has experts (Qwen2-MoE, Qwen3-MoE).");
  add_index_list(fields, "mlp_only_layers", fixed, "Indices of dense layers among them (Qwen2-MoE, Qwen3-MoE).");
  add_typed<double>(fields, "router_aux_loss_coef", at_least(0), free,
                    "Factor of the auxiliary load-balancing loss, if output_router_logits is true.");
  add_typed<bool>(fields, "output_router_logits", any_value(), free,
                  "Add the auxiliary load-balancing loss in training.");
}

// Members of config.json that one family has.
void add_family_fields(Fields& fields, const nn::ConfigMember& member) {
  using Type = nn::ConfigMember::Type;
  const ResumePolicy resume = member.changes_shapes ? ResumePolicy::fixed : ResumePolicy::guarded;
  const std::string key(member.name);
  switch (member.type) {
    case Type::integer:
      return add_typed<std::int64_t>(fields, key.c_str(),
                                     between(static_cast<double>(member.low), static_cast<double>(member.high)), resume,
                                     member.help);
    case Type::positive_number: return add_typed<double>(fields, key.c_str(), above(0), resume, member.help);
    case Type::nonnegative_number: return add_typed<double>(fields, key.c_str(), at_least(0), resume, member.help);
    case Type::boolean: return add_typed<bool>(fields, key.c_str(), any_value(), resume, member.help);
    case Type::text: return add_typed<std::string>(fields, key.c_str(), any_value(), resume, member.help);
    case Type::index_list: return add_index_list(fields, key.c_str(), resume, member.help);
  }
}

void add_numeric_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  add_typed<Int>(
      fields, "max_position_embeddings", between(1, kMaxExtent), free,
      "Longest sequence (context length). Where RoPE scaling follows from it (dynamic; yarn and longrope without "
      "a factor or original length), a resumed run may change it only if allowed.");
  add_typed<Int>(fields, "original_max_position_embeddings", between(1, kMaxExtent), guarded,
                 "Length of the sequences before RoPE scaling llama3, yarn and longrope; unset: the model's own.");
  add_typed<double>(fields, "rms_norm_eps", between(0, 1), guarded, "Epsilon of RMSNorm.");
  add_typed<double>(fields, "rope_theta", above(0), guarded, "Base of the RoPE frequencies.");
  add_object(fields, "rope_scaling", guarded,
             "RoPE scaling in place of the model's: linear, dynamic, yarn, llama3, longrope, or default for none "
             "(docs/guide/long-context.md).");
  add_object(fields, "rope_parameters", guarded, "The same under its name in transformers 5; may have rope_theta.");
  add_typed<double>(fields, "attention_dropout", from_below(0, 1), guarded, "Dropout on attention weights.");
  add_typed<double>(fields, "initializer_range", between(0, 10), free,
                    "Standard deviation of randomly initialised weights.");
  add_typed<Int>(fields, "sliding_window", between(1, kMaxExtent), guarded,
                 "Sliding-window attention: tokens that a query attends to.");
  add_typed<bool>(fields, "use_sliding_window", any_value(), guarded, "Whether sliding_window applies (Qwen).");
  add_typed<Int>(fields, "max_window_layers", between(0, 65536), guarded,
                 "First layer that uses the sliding window (Qwen).");
  add_typed<std::vector<std::string>>(
      fields, "layer_types", any_value(), guarded,
      "Attention kind of each layer: full_attention, chunked_attention (Llama 4) or sliding_attention "
      "(Qwen, Gemma, gpt-oss).");
}

void add_metadata_fields(Fields& fields) {
  using enum ResumePolicy;
  const std::string unused = "Accepted from a pasted config.json; not used.";
  add_token_ids(fields, "bos_token_id", "Token that begins a sequence.");
  add_token_ids(fields, "eos_token_id", "Token that ends a sequence; several are allowed.");
  add_token_ids(fields, "pad_token_id", "Padding token.");
  add_typed<std::string>(fields, "torch_dtype", any_value(), free,
                         "Dtype of the stored weights; training.dtype is that of the run.");
  add_typed<std::string>(fields, "dtype", any_value(), free, "torch_dtype under its name in transformers 5.");
  add_typed<bool>(fields, "use_cache", any_value(), free, unused);
  add_typed<std::int64_t>(fields, "pretraining_tp", between(1, 65536), free, unused);
  add_typed<std::string>(fields, "transformers_version", any_value(), free, unused);
  add_typed<std::string>(fields, "_name_or_path", any_value(), free, unused);
}

}  // namespace

void add_model_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "model.preset", QUENCH_MEMBER(model.preset), optional_text(), free,
            "Architecture by name (quench config ls); other fields of this section override it.");
  add_field(fields, "model.path", QUENCH_MEMBER(model.path), optional_path(), free,
            "Hugging Face model folder: config.json, safetensors, tokenizer; or hf:ORG/NAME, which `quench pull` "
            "downloads.");
  add_field(fields, "model.init", QUENCH_MEMBER(model.init), any_value(), free,
            "Weights at the start: from model.path, or random.", "load with model.path, else random");
  add_field(fields, "model.add_tokens", QUENCH_MEMBER(model.add_tokens), any_value(), fixed,
            "Tokens that the tokenizer learns, matched before normalization; \"special\" (default true): control "
            "tokens. Their ids follow the vocabulary, which grows beyond the rows of the embedding.");
  add_field(fields, "model.new_token_init", QUENCH_MEMBER(model.new_token_init), any_value(), fixed,
            "Rows of new tokens in loaded weights: mean of the stored rows, or normal, with initializer_range.");
  add_field(fields, "model.pad_vocab_to_multiple_of", QUENCH_MEMBER(model.pad_vocab_to_multiple_of),
            between(1, 1 << 20), fixed, "A vocabulary that grows is padded to a multiple of this.");
  add_shape_fields(fields);
  add_expert_fields(fields);
  for (const nn::ModelFamily& family : nn::model_families())
    for (const nn::ConfigMember& member : family.members) add_family_fields(fields, member);
  add_numeric_fields(fields);
  add_metadata_fields(fields);
}

}  // namespace quench
