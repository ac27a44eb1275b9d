// Field table: section model: origin of the model, and inline Hugging Face config.json fields (transformers:
// configuration_llama.py, configuration_qwen2.py, configuration_qwen3.py), each executed or harmless by
// nn/model_fields.h; others are rejected by name.

#include <algorithm>
#include <functional>

#include "nn/models/table.h"
#include "train/config/fields/field_builder.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

constexpr double kMaxExtent = 2147483647.0;

// config.json field: stored as JSON, absent by default; null equals absent, as in transformers.
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
  add_typed<Int>(fields, "num_local_experts", extent, fixed, "Experts of a layer (Mixtral, Llama 4).");
  add_typed<Int>(fields, "num_experts", extent, fixed, "Experts of a layer (Qwen3-MoE).");
  add_typed<Int>(fields, "num_experts_per_tok", extent, guarded, "Experts a token (top k of the router).");
  add_typed<Int>(fields, "moe_intermediate_size", extent, fixed, "Width of one expert (Qwen3-MoE, DeepSeek-V3).");
  add_typed<bool>(fields, "norm_topk_prob", any_value(), guarded,
                  "Normalize the top-k router weights to sum to 1 (Qwen3-MoE, DeepSeek-V3).");
  add_typed<Int>(fields, "decoder_sparse_step", extent, fixed, "Every n-th layer has experts (Qwen3-MoE).");
  add_index_list(fields, "mlp_only_layers", fixed, "Indices of dense layers among them (Qwen3-MoE).");
  add_typed<double>(fields, "router_aux_loss_coef", at_least(0), free,
                    "Factor of the auxiliary load-balancing loss, if output_router_logits is true.");
  add_typed<bool>(fields, "output_router_logits", any_value(), free,
                  "Add the auxiliary load-balancing loss in training.");
}

void add_deepseek_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  const ValueRule extent = between(1, kMaxExtent), count = between(0, kMaxExtent);
  add_typed<Int>(fields, "n_routed_experts", extent, fixed, "Experts of a layer (DeepSeek-V3).");
  add_typed<Int>(
      fields, "n_shared_experts", count, fixed,
      "Shared experts, computed for every token as one feed-forward layer of n times the expert width (DeepSeek-V3).");
  add_typed<Int>(fields, "first_k_dense_replace", count, fixed, "Number of dense layers at the input (DeepSeek-V3).");
  add_typed<Int>(fields, "n_group", extent, guarded, "Expert groups of group-limited routing (DeepSeek-V3).");
  add_typed<Int>(fields, "topk_group", extent, guarded,
                 "Expert groups that a token selects before its experts (DeepSeek-V3).");
  add_typed<double>(fields, "routed_scaling_factor", above(0), guarded,
                    "Factor of the router weights of a token's experts (DeepSeek-V3).");
  add_typed<Int>(fields, "kv_lora_rank", extent, fixed,
                 "Multi-head latent attention: rank of the compressed key-value latent (DeepSeek-V3).");
  add_typed<Int>(fields, "q_lora_rank", extent, fixed,
                 "Multi-head latent attention: rank of the compressed query latent; null: queries are projected from "
                 "the hidden state (DeepSeek-V3).");
  add_typed<Int>(fields, "qk_nope_head_dim", count, fixed,
                 "Multi-head latent attention: query and key dimensions of a head without RoPE (DeepSeek-V3).");
  add_typed<Int>(fields, "qk_rope_head_dim", between(2, 65536), fixed,
                 "Multi-head latent attention: query and key dimensions of a head with RoPE (DeepSeek-V3).");
  add_typed<Int>(fields, "v_head_dim", extent, fixed,
                 "Multi-head latent attention: value dimensions of a head (DeepSeek-V3).");
  add_typed<bool>(fields, "rope_interleave", any_value(), guarded,
                  "RoPE rotates adjacent pairs of dimensions instead of the two halves (DeepSeek-V3).");
}

void add_llama4_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  const ValueRule extent = between(1, kMaxExtent);
  add_typed<Int>(fields, "intermediate_size_mlp", extent, fixed,
                 "Width of the feed-forward layer of dense layers; intermediate_size is that of an expert (Llama 4).");
  add_typed<Int>(fields, "interleave_moe_layer_step", extent, fixed, "Every n-th layer has experts (Llama 4).");
  add_index_list(fields, "moe_layers", fixed,
                 "Indices of layers with experts; unset: by interleave_moe_layer_step (Llama 4).");
  add_index_list(fields, "no_rope_layers", guarded,
                 "One entry a layer: 1 with RoPE, 0 without (Llama 4); unset or empty: by no_rope_layer_interval.");
  add_typed<Int>(fields, "no_rope_layer_interval", extent, guarded, "Every n-th layer has no RoPE (Llama 4).");
  add_typed<Int>(fields, "attention_chunk_size", extent, guarded,
                 "Chunk length of chunked_attention layers: tokens attend within their chunk (Llama 4).");
  add_typed<bool>(fields, "use_qk_norm", any_value(), guarded, "L2 norm of queries and keys after RoPE (Llama 4).");
  add_typed<bool>(fields, "attn_temperature_tuning", any_value(), guarded,
                  "Layers without RoPE scale queries by position (Llama 4).");
  add_typed<double>(
      fields, "attn_scale", at_least(0), guarded,
      "Query scale of attn_temperature_tuning at position p: 1 + attn_scale * log(1 + floor((p + 1) / floor_scale)).");
  add_typed<Int>(fields, "floor_scale", extent, guarded, "See attn_scale (Llama 4).");
}

void add_numeric_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  add_typed<Int>(fields, "max_position_embeddings", between(1, kMaxExtent), free, "Longest sequence (context length).");
  add_typed<double>(fields, "rms_norm_eps", between(0, 1), guarded, "Epsilon of RMSNorm.");
  add_typed<double>(fields, "rope_theta", above(0), guarded, "Base of the RoPE frequencies.");
  add_object(fields, "rope_scaling", guarded, "RoPE scaling: linear, dynamic, yarn or llama3.");
  add_object(fields, "rope_parameters", guarded, "rope_theta and rope_scaling in one object (transformers 5).");
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
      "(Qwen).");
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
  add_field(fields, "model.path", QUENCH_MEMBER(model.path), optional_text(), free,
            "Hugging Face model folder: config.json, safetensors, tokenizer.");
  add_field(fields, "model.init", QUENCH_MEMBER(model.init), any_value(), free,
            "Weights at the start: from model.path, or random.", "load with model.path, else random");
  add_shape_fields(fields);
  add_expert_fields(fields);
  add_deepseek_fields(fields);
  add_llama4_fields(fields);
  add_numeric_fields(fields);
  add_metadata_fields(fields);
}

}  // namespace quench
