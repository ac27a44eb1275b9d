// DeepSeek-V3 and R1 (arXiv:2412.19437): MLA; after some dense layers, MoE with grouped experts, sigmoid scores, expert
// bias and a shared expert.

#include <algorithm>
#include <cmath>

#include "nn/attention/latent_attention.h"
#include "nn/experts/moe.h"
#include "nn/models/decoder_block.h"
#include "nn/modules/rope_scale.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

constexpr std::int64_t kMaxMtpLayers = 64;

// Returns LayerKinds::sparse.
std::vector<bool> apply_experts(ConfigReader& in, ModelConfig& config) {
  ExpertsSpec& experts = config.experts;
  experts.count = in.integer("n_routed_experts", 256, 1, kMaxExperts);
  experts.per_token = in.integer("num_experts_per_tok", 8, 1, kMaxExperts);
  experts.intermediate_size = in.integer("moe_intermediate_size", 2048, 1, kMaxDimension);
  experts.normalize = in.boolean("norm_topk_prob", true);
  experts.sigmoid = true;
  experts.factor = static_cast<float>(in.number("routed_scaling_factor", 2.5, true));
  experts.groups = in.integer("n_group", 8, 1, kMaxExperts);
  experts.groups_per_token = in.integer("topk_group", 4, 1, kMaxExperts);
  experts.expert_bias = true;
  experts.shared_width = in.integer("n_shared_experts", 1, 0, kMaxExperts) * experts.intermediate_size;
  const std::int64_t dense = in.integer("first_k_dense_replace", 3, 0, kMaxDimension);
  std::vector<bool> sparse;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) sparse.push_back(layer >= dense);
  if (experts.count % experts.groups != 0)
    in.fault("n_group", fmt::format("{} experts do not form {} groups of equal size", experts.count, experts.groups));
  else if (experts.groups > 1 && experts.count / experts.groups < 2)
    in.fault("n_group", fmt::format("{} groups of {} experts have a single one each; a group counts as much as its two "
                                    "best",
                                    experts.groups, experts.count));
  else if (experts.groups_per_token > experts.groups)
    in.fault("topk_group", fmt::format("{} groups for each token, of {}", experts.groups_per_token, experts.groups));
  else if (experts.per_token > experts.count / experts.groups * experts.groups_per_token)
    in.fault("num_experts_per_tok",
             fmt::format("{} experts for each token, of {} in its {} groups", experts.per_token,
                         experts.count / experts.groups * experts.groups_per_token, experts.groups_per_token));
  // The checks below pin members to the behaviour of Transformers' class.
  if (const std::string method = in.string("topk_method", "noaux_tc"); method != "noaux_tc")
    in.fault("topk_method", fmt::format("'{}' is not supported; known: noaux_tc", method));
  if (const std::string scoring = in.string("scoring_func", "sigmoid"); scoring != "sigmoid")
    in.fault("scoring_func", fmt::format("'{}' is not supported; known: sigmoid", scoring));
  if (in.integer("moe_layer_freq", 1, 0, kMaxDimension) != 1)
    in.fault("moe_layer_freq", "only 1 is supported: every layer after the dense ones has experts");
  return sparse;
}

void make_latent(const ModelConfig& config, const MlaSpec& mla, bool interleaved, BlockSpec& block) {
  AttentionSpec& attention = block.attention;
  attention.mla = mla;
  attention.make = make_sublayer<LatentAttention>;
  attention.key_dim = mla.key_dim();
  attention.value_dim = mla.value_dim;
  attention.scale = rope_score_factor(config.rope) / std::sqrt(static_cast<double>(mla.key_dim()));
  attention.rotary->dim = mla.rotary_dim;
  attention.rotary->interleaved = interleaved;
}

void read_deepseek(ConfigReader& in, ModelConfig& config) {
  MlaSpec mla;
  mla.kv_rank = in.integer("kv_lora_rank", 512, 1, kMaxDimension);
  // null: no low-rank query projection; absent: the class's default.
  const Json* query_rank = in.json().find("q_lora_rank");
  mla.query_rank =
      query_rank != nullptr && query_rank->is_null() ? 0 : in.integer("q_lora_rank", 1536, 1, kMaxDimension);
  mla.nope_dim = in.integer("qk_nope_head_dim", 128, 0, 65536);
  mla.rotary_dim = in.integer("qk_rope_head_dim", 64, 2, 65536);
  mla.value_dim = in.integer("v_head_dim", 128, 1, 65536);
  mla.bias = in.boolean("attention_bias", false);
  const bool interleaved = in.boolean("rope_interleave", true);
  if (mla.rotary_dim % 2 != 0)
    in.fault("qk_rope_head_dim", fmt::format("{} is odd; rotary embedding needs pairs", mla.rotary_dim));
  if (mla.value_dim > mla.key_dim())
    in.fault("v_head_dim", fmt::format("{} is more than qk_nope_head_dim {} + qk_rope_head_dim {}; not supported",
                                       mla.value_dim, mla.nope_dim, mla.rotary_dim));
  if (config.num_key_value_heads != config.num_attention_heads)
    in.fault("num_key_value_heads", fmt::format("{}, but latent attention has as many as num_attention_heads, {}",
                                                config.num_key_value_heads, config.num_attention_heads));
  // head_dim is the rotated width in Transformers.
  config.head_dim = mla.rotary_dim;
  // Ignored by Transformers' class.
  config.mtp.declared = in.integer("num_nextn_predict_layers", 0, 0, kMaxMtpLayers);
  const std::vector<bool> sparse = apply_experts(in, config);
  config.blocks = decoder_blocks(config, {.sparse = sparse});
  for (BlockSpec& block : config.blocks) make_latent(config, mla, interleaved, block);
  // Any layer after the dense ones has experts, MTP layers too.
  config.mtp.block = decoder_block(config, config.num_hidden_layers);
  make_latent(config, mla, interleaved, config.mtp.block);
}

void write_deepseek(const ModelConfig& config, Json& json) {
  const AttentionSpec& attention = config.block(0).attention;
  const MlaSpec& mla = *attention.mla;
  json.set("kv_lora_rank", mla.kv_rank);
  json.set("q_lora_rank", mla.query_rank > 0 ? Json(mla.query_rank) : Json());
  json.set("qk_nope_head_dim", mla.nope_dim);
  json.set("qk_rope_head_dim", mla.rotary_dim);
  json.set("v_head_dim", mla.value_dim);
  json.set("qk_head_dim", mla.key_dim());
  json.set("attention_bias", mla.bias);
  json.set("rope_interleave", attention.rotary->interleaved);
  const ExpertsSpec& experts = config.experts;
  json.set("n_routed_experts", experts.count);
  json.set("n_shared_experts", experts.shared_width / experts.intermediate_size);
  json.set("num_experts_per_tok", experts.per_token);
  json.set("moe_intermediate_size", experts.intermediate_size);
  json.set("norm_topk_prob", experts.normalize);
  // Not members of Transformers' class; vLLM makes the expert bias under this method only.
  json.set("topk_method", "noaux_tc");
  json.set("scoring_func", "sigmoid");
  json.set("routed_scaling_factor", std::stod(fmt::format("{}", experts.factor)));
  json.set("n_group", experts.groups);
  json.set("topk_group", experts.groups_per_token);
  json.set("num_nextn_predict_layers", config.mtp.layers);
  json.set("first_k_dense_replace", config.num_hidden_layers - config.sparse_layers());
}

}  // namespace

extern const ModelFamily kDeepseekV3;
const ModelFamily kDeepseekV3{
    .architecture = "DeepseekV3ForCausalLM",
    .model_type = "deepseek_v3",
    .apply = read_deepseek,
    .write = write_deepseek,
    .members =
        {{.name = "n_routed_experts",
          .changes_shapes = true,
          .help = "Experts of a layer (DeepSeek-V3).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[0]"},
         {.name = "n_shared_experts",
          .low = 0,
          .changes_shapes = true,
          .help = "Shared experts, computed for every token as one feed-forward layer of n times the expert width "
                  "(DeepSeek-V3).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[0]"},
         {.name = "first_k_dense_replace",
          .low = 0,
          .changes_shapes = true,
          .help = "Number of dense layers at the input (DeepSeek-V3).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[0]"},
         {.name = "n_group",
          .help = "Expert groups of group-limited routing (DeepSeek-V3).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[1]"},
         {.name = "topk_group",
          .help = "Expert groups that a token selects before its experts (DeepSeek-V3).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[1]"},
         {.name = "routed_scaling_factor",
          .type = ConfigMember::Type::positive_number,
          .help = "Factor of the router weights of a token's experts (DeepSeek-V3).",
          .refusal = "mixture-of-experts layers in this family",
          .neutral = "[1]"},
         {.name = "kv_lora_rank",
          .changes_shapes = true,
          .help = "Multi-head latent attention: rank of the compressed key-value latent (DeepSeek-V3).",
          .refusal = "latent attention in this family"},
         {.name = "q_lora_rank",
          .changes_shapes = true,
          .help = "Multi-head latent attention: rank of the compressed query latent; null: queries are projected from "
                  "the hidden state (DeepSeek-V3).",
          .refusal = "latent attention in this family"},
         {.name = "qk_nope_head_dim",
          .low = 0,
          .changes_shapes = true,
          .help = "Multi-head latent attention: query and key dimensions of a head without RoPE (DeepSeek-V3).",
          .refusal = "latent attention in this family"},
         {.name = "qk_rope_head_dim",
          .low = 2,
          .high = 65536,
          .changes_shapes = true,
          .help = "Multi-head latent attention: query and key dimensions of a head with RoPE (DeepSeek-V3).",
          .refusal = "latent attention in this family"},
         {.name = "v_head_dim",
          .changes_shapes = true,
          .help = "Multi-head latent attention: value dimensions of a head (DeepSeek-V3).",
          .refusal = "latent attention in this family"},
         {.name = "rope_interleave",
          .type = ConfigMember::Type::boolean,
          .help = "RoPE rotates adjacent pairs of dimensions instead of the two halves (DeepSeek-V3).",
          .refusal = "rotation of neighbouring pairs",
          .neutral = "[false]"},
         {.name = "num_nextn_predict_layers",
          .low = 0,
          .high = kMaxMtpLayers,
          .changes_shapes = true,
          .help =
              "Layers of multi-token prediction after the last decoder layer, which training.mtp_loss_weight trains "
              "(DeepSeek-V3).",
          .refusal = "multi-token prediction in this family",
          .neutral = "[0]"}},
    .executes = {"qk_head_dim", "attention_bias", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                 "topk_method", "scoring_func", "moe_layer_freq"},
    .mtp = true,
    .defaults = {.max_position_embeddings = 4096}};

}  // namespace quench::nn
