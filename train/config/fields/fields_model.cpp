// Rows of the section model: where the model comes from, and the fields of a Hugging Face config.json that may stand
// there inline (transformers: configuration_llama.py, configuration_qwen2.py, configuration_qwen3.py). Each is one that
// nn/model_fields.h calls executed or harmless; what is missing there is refused by name.

#include <algorithm>

#include "nn/models/table.h"
#include "train/config/enum_names.h"
#include "train/config/fields/field_builder.h"

namespace quench {
namespace {

constexpr double kMaxExtent = 2147483647.0;

// A config.json field: stored as JSON, absent by default; null is the same as absent, as in transformers.
template <class Check>
Field architecture_field(std::string key, ValueKind kind, std::string type, Json schema, ResumePolicy resume,
                         std::string help, Check check) {
  Field field;
  field.path = "model." + key;
  field.type = type + " or null";
  field.help = std::move(help);
  field.kind = kind;
  field.nullable = true;
  field.architecture = true;
  field.resume = resume;
  field.schema = Json(Json::Object{{"anyOf", Json::Array{std::move(schema), Json(Json::Object{{"type", "null"}})}}});
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
  return field;
}

template <class T>
Field typed(std::string key, ValueRule rule, ResumePolicy resume, std::string help) {
  return architecture_field(std::move(key), Codec<T>::kind, Codec<T>::type(rule), Codec<T>::schema(rule), resume,
                            std::move(help), [rule](const Json& value) {
                              T ignored{};
                              return Codec<T>::read(value, rule, ignored);
                            });
}

Field object(std::string key, ResumePolicy resume, std::string help) {
  return architecture_field(std::move(key), ValueKind::json, "object", Json(Json::Object{{"type", "object"}}), resume,
                            std::move(help), [](const Json& value) -> ReadError {
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

Field token_ids(std::string key, std::string help) {
  const std::string type = "integer >= 0 or list of them";
  Json schema(Json::Object{{"anyOf", Json::Array{index_schema(), index_list_schema()}}});
  return architecture_field(std::move(key), ValueKind::json, type, std::move(schema), ResumePolicy::free,
                            std::move(help), [type](const Json& value) -> ReadError {
                              if (!is_index(value) && !is_index_list(value)) return wrong_value(type, value);
                              return std::nullopt;
                            });
}

void add_shape_fields(Fields& fields) {
  using enum ResumePolicy;
  const ValueRule extent = between(1, kMaxExtent);
  using Int = std::int64_t;
  fields.push_back(typed<std::string>("model_type", one_of(model_types()), fixed,
                                      "Architecture family; architectures must be of the same."));
  fields.push_back(
      typed<std::vector<std::string>>("architectures", any_value(), free, "Class names, e.g. LlamaForCausalLM."));
  fields.push_back(typed<Int>("vocab_size", extent, fixed, "Rows of the embedding."));
  fields.push_back(typed<Int>("hidden_size", extent, fixed, "Width of the residual stream."));
  fields.push_back(typed<Int>("intermediate_size", extent, fixed, "Width of the MLP."));
  fields.push_back(typed<Int>("num_hidden_layers", between(1, 65536), fixed, "Decoder layers."));
  fields.push_back(typed<Int>("num_attention_heads", between(1, 65536), fixed, "Query heads."));
  fields.push_back(
      typed<Int>("num_key_value_heads", between(1, 65536), fixed, "Key and value heads; unset: num_attention_heads."));
  fields.push_back(
      typed<Int>("head_dim", between(2, 65536), fixed, "Width of one head; unset: hidden_size / num_attention_heads."));
  fields.push_back(typed<std::string>("hidden_act", one_of({"silu"}), guarded, "Activation of the gated MLP."));
  fields.push_back(
      typed<bool>("tie_word_embeddings", any_value(), fixed, "The output projection is the embedding matrix."));
  fields.push_back(typed<bool>("attention_bias", any_value(), fixed, "Biases in the attention projections."));
  fields.push_back(typed<bool>("mlp_bias", any_value(), fixed, "Biases in the MLP projections."));
}

Field index_list(std::string key, ResumePolicy resume, std::string help) {
  const std::string type = "list of integers >= 0";
  return architecture_field(std::move(key), ValueKind::json, type, index_list_schema(), resume, std::move(help),
                            [type](const Json& value) -> ReadError {
                              if (!is_index_list(value)) return wrong_value(type, value);
                              return std::nullopt;
                            });
}

void add_expert_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  const ValueRule extent = between(1, kMaxExtent);
  fields.push_back(typed<Int>("num_local_experts", extent, fixed, "Experts of a layer (Mixtral, Llama 4)."));
  fields.push_back(typed<Int>("num_experts", extent, fixed, "Experts of a layer (Qwen3-MoE)."));
  fields.push_back(typed<Int>("num_experts_per_tok", extent, guarded, "Experts that a token goes to."));
  fields.push_back(typed<Int>("moe_intermediate_size", extent, fixed, "Width of one expert (Qwen3-MoE, DeepSeek-V3)."));
  fields.push_back(typed<bool>("norm_topk_prob", any_value(), guarded,
                               "The weights of a token's experts sum to 1 (Qwen3-MoE, DeepSeek-V3)."));
  fields.push_back(typed<Int>("decoder_sparse_step", extent, fixed, "Every such layer has experts (Qwen3-MoE)."));
  fields.push_back(index_list("mlp_only_layers", fixed, "Layers without experts all the same (Qwen3-MoE)."));
  fields.push_back(typed<double>("router_aux_loss_coef", at_least(0), free,
                                 "Factor of the load-balancing loss where output_router_logits is true."));
  fields.push_back(typed<bool>("output_router_logits", any_value(), free, "Training adds the load-balancing loss."));
}

void add_deepseek_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  const ValueRule extent = between(1, kMaxExtent), count = between(0, kMaxExtent);
  fields.push_back(typed<Int>("n_routed_experts", extent, fixed, "Experts of a layer (DeepSeek-V3)."));
  fields.push_back(typed<Int>("n_shared_experts", count, fixed,
                              "Experts that every token goes to, as one block of so many widths (DeepSeek-V3)."));
  fields.push_back(typed<Int>("first_k_dense_replace", count, fixed, "First layers without experts (DeepSeek-V3)."));
  fields.push_back(
      typed<Int>("n_group", extent, guarded, "Groups of experts, of which a token chooses first (DeepSeek-V3)."));
  fields.push_back(typed<Int>("topk_group", extent, guarded, "Groups that a token's experts come from (DeepSeek-V3)."));
  fields.push_back(typed<double>("routed_scaling_factor", above(0), guarded,
                                 "What the weights of a token's experts are multiplied by (DeepSeek-V3)."));
  fields.push_back(
      typed<Int>("kv_lora_rank", extent, fixed, "Width of the vector that keys and values come from (DeepSeek-V3)."));
  fields.push_back(
      typed<Int>("q_lora_rank", extent, fixed,
                 "Width of the vector that queries come from; null: the hidden state itself (DeepSeek-V3)."));
  fields.push_back(typed<Int>("qk_nope_head_dim", count, fixed,
                              "Part of a query's or key's head without a position (DeepSeek-V3)."));
  fields.push_back(typed<Int>("qk_rope_head_dim", between(2, 65536), fixed, "Rotated part of it (DeepSeek-V3)."));
  fields.push_back(typed<Int>("v_head_dim", extent, fixed, "Width of a value's head (DeepSeek-V3)."));
  fields.push_back(typed<bool>("rope_interleave", any_value(), guarded,
                               "Neighbours are rotated together, not halves of the rotated part (DeepSeek-V3)."));
}

void add_llama4_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  const ValueRule extent = between(1, kMaxExtent);
  fields.push_back(typed<Int>("intermediate_size_mlp", extent, fixed,
                              "Width of the MLP in layers without experts; intermediate_size is that of an expert "
                              "(Llama 4)."));
  fields.push_back(typed<Int>("interleave_moe_layer_step", extent, fixed, "Every such layer has experts (Llama 4)."));
  fields.push_back(
      index_list("moe_layers", fixed, "Layers with experts; unset: by interleave_moe_layer_step (Llama 4)."));
  fields.push_back(index_list("no_rope_layers", guarded,
                              "For each layer 1 with rotary positions, 0 without (Llama 4); unset or empty: by "
                              "no_rope_layer_interval."));
  fields.push_back(
      typed<Int>("no_rope_layer_interval", extent, guarded, "Every such layer has no rotary positions (Llama 4)."));
  fields.push_back(typed<Int>("attention_chunk_size", extent, guarded,
                              "Tokens that attend among themselves in layers of chunked_attention (Llama 4)."));
  fields.push_back(typed<bool>("use_qk_norm", any_value(), guarded,
                               "Rotated queries and keys are divided by their root mean square (Llama 4)."));
  fields.push_back(typed<bool>("attn_temperature_tuning", any_value(), guarded,
                               "Layers without rotary positions scale queries by position (Llama 4)."));
  fields.push_back(
      typed<double>("attn_scale", at_least(0), guarded,
                    "That scale at position p is 1 + attn_scale * log(1 + floor((p + 1) / floor_scale))."));
  fields.push_back(typed<Int>("floor_scale", extent, guarded, "See attn_scale (Llama 4)."));
}

void add_numeric_fields(Fields& fields) {
  using enum ResumePolicy;
  using Int = std::int64_t;
  fields.push_back(typed<Int>("max_position_embeddings", between(1, kMaxExtent), free, "Longest sequence."));
  fields.push_back(typed<double>("rms_norm_eps", between(0, 1), guarded, "Added to the mean square in the norms."));
  fields.push_back(typed<double>("rope_theta", above(0), guarded, "Base of the rotary frequencies."));
  fields.push_back(
      object("rope_scaling", guarded, "Rescaling of the rotary frequencies: linear, dynamic, yarn or llama3."));
  fields.push_back(object("rope_parameters", guarded, "rope_theta and rope_scaling in one object (transformers 5)."));
  fields.push_back(typed<double>("attention_dropout", from_below(0, 1), guarded, "Dropout on attention weights."));
  fields.push_back(
      typed<double>("initializer_range", between(0, 10), free, "Standard deviation of randomly initialised weights."));
  fields.push_back(typed<Int>("sliding_window", between(1, kMaxExtent), guarded, "Tokens that attention looks back."));
  fields.push_back(typed<bool>("use_sliding_window", any_value(), guarded, "Whether sliding_window applies (Qwen)."));
  fields.push_back(
      typed<Int>("max_window_layers", between(0, 65536), guarded, "First layer that uses the sliding window (Qwen)."));
  fields.push_back(
      typed<std::vector<std::string>>("layer_types", any_value(), guarded,
                                      "Attention kind of each layer: full_attention, or (Llama 4) chunked_attention."));
}

void add_metadata_fields(Fields& fields) {
  using enum ResumePolicy;
  const std::string unused = "Accepted from a pasted config.json; not used.";
  fields.push_back(token_ids("bos_token_id", "Token that begins a sequence."));
  fields.push_back(token_ids("eos_token_id", "Token that ends a sequence; several are allowed."));
  fields.push_back(token_ids("pad_token_id", "Token that fills batches."));
  fields.push_back(typed<std::string>("torch_dtype", any_value(), free,
                                      "Dtype of the stored weights; training.dtype decides how the run computes."));
  fields.push_back(typed<std::string>("dtype", any_value(), free, "torch_dtype under its name in transformers 5."));
  fields.push_back(typed<bool>("use_cache", any_value(), free, unused));
  fields.push_back(typed<std::int64_t>("pretraining_tp", between(1, 65536), free, unused));
  fields.push_back(typed<std::string>("transformers_version", any_value(), free, unused));
  fields.push_back(typed<std::string>("_name_or_path", any_value(), free, unused));
}

}  // namespace

void add_model_fields(Fields& fields) {
  using enum ResumePolicy;
  fields.push_back(make_field("model.preset", QUENCH_MEMBER(model.preset), optional_text(), free,
                              "Architecture by name (quench config ls); fields given beside it win."));
  fields.push_back(make_field("model.path", QUENCH_MEMBER(model.path), optional_text(), free,
                              "Hugging Face model folder: config.json, safetensors, tokenizer."));
  fields.push_back(make_field("model.init", QUENCH_MEMBER(model.init), any_value(), free,
                              "Weights at the start: from model.path, or random.",
                              "load with model.path, else random"));
  add_shape_fields(fields);
  add_expert_fields(fields);
  add_deepseek_fields(fields);
  add_llama4_fields(fields);
  add_numeric_fields(fields);
  add_metadata_fields(fields);
}

}  // namespace quench
