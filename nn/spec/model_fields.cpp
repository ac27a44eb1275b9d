#include "nn/spec/model_fields.h"

#include <algorithm>

#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

constexpr std::string_view kExperts = "mixture-of-experts layers in this family";
constexpr std::string_view kLatent = "latent attention in this family";
constexpr std::string_view kSoftCap = "soft caps on logits";
constexpr std::string_view kScales = "scale factors between the layers";
constexpr std::string_view kPartialRotary = "a rotation of a part of each head";
constexpr std::string_view kWindow = "a sliding window in this family";
constexpr std::string_view kBias = "these biases in this family";
constexpr std::string_view kPositions = "other positions than rotary ones";
constexpr std::string_view kQkNorm = "a norm of queries and keys in this family";
constexpr std::string_view kParallel = "attention and MLP side by side";
constexpr std::string_view kDropout = "dropout";
constexpr std::string_view kEncoder = "an encoder";

constexpr std::string_view kLibrary = "a setting of the library that wrote the file";
constexpr std::string_view kGeneration = "a default of another program's sampling";
constexpr std::string_view kHead = "belongs to heads other than the language model's";

constexpr FieldUse kExecuted = FieldUse::executed;
constexpr FieldUse kHarmless = FieldUse::harmless;
constexpr FieldUse kMissing = FieldUse::missing;

// Names of transformers' configuration classes.
constexpr ModelField kFields[] = {
    {"architectures", kExecuted},
    {"model_type", kExecuted},
    {"vocab_size", kExecuted},
    {"hidden_size", kExecuted},
    {"intermediate_size", kExecuted},
    {"num_hidden_layers", kExecuted},
    {"num_attention_heads", kExecuted},
    {"num_key_value_heads", kExecuted},
    {"head_dim", kExecuted},
    {"hidden_act", kExecuted},
    {"tie_word_embeddings", kExecuted},
    {"max_position_embeddings", kExecuted},
    {"original_max_position_embeddings", kExecuted},
    {"rms_norm_eps", kExecuted},
    {"rope_theta", kExecuted},
    {"rope_scaling", kExecuted},
    {"rope_parameters", kExecuted},
    {"initializer_range", kExecuted},
    {"layer_types", kExecuted},
    {"attention_dropout", kExecuted},  // rejected above 0 in training
    {"bos_token_id", kExecuted},
    {"eos_token_id", kExecuted},
    {"pad_token_id", kExecuted},
    {"torch_dtype", kExecuted},
    {"dtype", kExecuted},

    {"use_cache", kHarmless, "generation has a cache in any case"},
    {"pretraining_tp", kHarmless, "splits GEMMs without changing their results"},
    {"max_window_layers", kHarmless, "applies only with use_sliding_window, in families that execute that"},
    {"transformers_version", kHarmless, kLibrary},
    {"_name_or_path", kHarmless, kLibrary},
    {"auto_map", kHarmless, kLibrary},
    {"attn_implementation", kHarmless, kLibrary},
    {"_attn_implementation", kHarmless, kLibrary},
    {"_flash_attn_2_enabled", kHarmless, kLibrary},
    {"output_attentions", kHarmless, kLibrary},
    {"output_hidden_states", kHarmless, kLibrary},
    {"return_dict", kHarmless, kLibrary},
    {"torchscript", kHarmless, kLibrary},
    {"use_bfloat16", kHarmless, kLibrary},
    {"chunk_size_feed_forward", kHarmless, "splits GEMMs without changing their results"},
    {"is_decoder", kHarmless, "every model here is a decoder"},
    {"tokenizer_class", kHarmless, kLibrary},
    {"model_max_length", kHarmless, kLibrary},
    {"unsloth_fixed", kHarmless, kLibrary},
    {"unsloth_version", kHarmless, kLibrary},
    {"unk_token_id", kHarmless, "the tokenizer's files name it"},
    {"sep_token_id", kHarmless, kHead},
    {"cls_token_id", kHarmless, kHead},
    {"decoder_start_token_id", kHarmless, kHead},
    {"id2label", kHarmless, kHead},
    {"label2id", kHarmless, kHead},
    {"problem_type", kHarmless, kHead},
    {"finetuning_task", kHarmless, kHead},
    {"task_specific_params", kHarmless, kHead},
    {"prefix", kHarmless, kHead},
    {"temperature", kHarmless, kGeneration},
    {"top_k", kHarmless, kGeneration},
    {"top_p", kHarmless, kGeneration},
    {"do_sample", kHarmless, kGeneration},
    {"repetition_penalty", kHarmless, kGeneration},
    {"length_penalty", kHarmless, kGeneration},
    {"max_length", kHarmless, kGeneration},
    {"min_length", kHarmless, kGeneration},
    {"num_beams", kHarmless, kGeneration},

    {"quantization_config", kMissing, "training of quantized checkpoints: use the original weights"},
    {"attention_bias", kMissing, kBias, "[false]"},
    {"attention_out_bias", kMissing, kBias, "[false]"},
    {"mlp_bias", kMissing, kBias, "[false]"},
    {"use_bias", kMissing, kBias, "[false]"},
    {"lm_head_bias", kMissing, kBias, "[false]"},
    {"sliding_window", kMissing, kWindow},
    {"use_sliding_window", kMissing, kWindow, "[false]"},
    {"rotary_pct", kMissing, kPartialRotary, "[1]"},
    {"rotary_dim", kMissing, kPartialRotary},
    {"use_bidirectional_attention", kMissing, "attention to later tokens", "[false]"},
    {"rope_interleaved", kMissing, "rotation of neighbouring pairs", "[false]"},
    {"full_attn_mod", kMissing, "another attention in some layers of this family", "[1]"},
    {"interpolate_factor", kMissing, "interpolated positions", "[1]"},
    {"use_mrope", kMissing, "rotary positions in several dimensions", "[false]"},
    {"alibi", kMissing, kPositions, "[false]"},
    {"position_embedding_type", kMissing, kPositions, "[\"rope\", \"rotary\", \"absolute\"]"},
    {"qk_norm", kMissing, kQkNorm, "[false]"},
    {"qk_layernorm", kMissing, kQkNorm, "[false]"},
    {"parallel_attn", kMissing, kParallel, "[false]"},
    {"use_parallel_residual", kMissing, kParallel, "[false]"},
    {"logit_softcapping", kMissing, kSoftCap, "[0]"},
    {"logit_scale", kMissing, kScales, "[1]"},
    {"scale_emb", kMissing, kScales, "[1]"},
    {"scale_depth", kMissing, kScales},
    {"dim_model_base", kMissing, kScales},
    {"resid_pdrop", kMissing, kDropout, "[0]"},
    {"embd_pdrop", kMissing, kDropout, "[0]"},
    {"hidden_dropout", kMissing, kDropout, "[0]"},
    {"is_encoder_decoder", kMissing, kEncoder, "[false]"},
    {"add_cross_attention", kMissing, kEncoder, "[false]"},
    {"cross_attention_hidden_size", kMissing, kEncoder},
    {"tie_encoder_decoder", kMissing, kEncoder, "[false]"},
    {"pruned_heads", kMissing, "pruned heads", "[{}]"},

    {"qk_head_dim", kMissing, kLatent},

    {"num_experts", kMissing, kExperts, "[0]"},
    {"num_local_experts", kMissing, kExperts, "[0]"},
    {"num_experts_per_tok", kMissing, kExperts, "[0]"},
    {"moe_intermediate_size", kMissing, kExperts, "[0]"},
    {"decoder_sparse_step", kMissing, kExperts, "[0]"},
    {"mlp_only_layers", kMissing, kExperts, "[[]]"},
    {"norm_topk_prob", kMissing, kExperts, "[false]"},
    {"router_aux_loss_coef", kMissing, kExperts, "[0]"},
    {"output_router_logits", kMissing, kExperts, "[false]"},
    {"topk_method", kMissing, kExperts},
    {"scoring_func", kMissing, kExperts},
    {"moe_layer_freq", kMissing, kExperts, "[1]"},
    {"experts_per_token", kHarmless, "num_experts_per_tok says it"},
    {"initial_context_length", kHarmless, "the RoPE scaling says it"},
    {"for_llm_compressor", kHarmless, kLibrary},
    {"cache_implementation", kHarmless, "generation has a cache in any case"},
    {"aux_loss_alpha", kHarmless, "the class adds no such loss: training.router_balance_loss does"},
    {"seq_aux", kHarmless, "the class adds no such loss: training.router_balance_loss does"},
    {"ep_size", kHarmless, "parallel.expert says it for a run"},
    {"router_jitter_noise", kMissing, "noise on the inputs of experts while they are trained", "[0]"},
};

bool is_neutral(const ModelField& field, const Json& value) {
  if (value.is_null()) return true;
  const Json neutral = Json::parse(field.neutral);
  return std::ranges::any_of(neutral.as_array(), [&](const Json& known) {
    return value == known || (value.is_number() && known.is_number() && value.as_double() == known.as_double());
  });
}

}  // namespace

std::span<const ModelField> model_fields() {
  static const std::vector<ModelField> fields = [] {
    std::vector<ModelField> all(std::begin(kFields), std::end(kFields));
    for (const ModelFamily& family : model_families())
      for (const ConfigMember& member : family.members)
        all.push_back({member.name, FieldUse::missing, member.refusal, member.neutral});
    return all;
  }();
  return fields;
}

const ModelField* find_model_field(std::string_view name) {
  const auto fields = model_fields();
  const auto found = std::ranges::find(fields, name, &ModelField::name);
  return found == fields.end() ? nullptr : &*found;
}

std::string field_refusal(const ModelFamily* family, std::string_view name, const Json& value) {
  const ModelField* field = find_model_field(name);
  if (field == nullptr || field->use != FieldUse::missing || is_neutral(*field, value)) return {};
  if (family != nullptr && family->has_member(name)) return {};
  return fmt::format("{} is not supported: {}", value.dump(), field->note);
}

}  // namespace quench::nn
