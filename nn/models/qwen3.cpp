// Qwen3, dense and MoE: Llama with RMSNorm of query and key heads before RoPE.

#include <algorithm>

#include "nn/experts/moe.h"
#include "nn/models/decoder_block.h"
#include "nn/models/sliding_window.h"
#include "nn/models/sparse_layers.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_attention(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = config.output_bias = in.boolean("attention_bias", false);
  if (in.find("head_dim") == nullptr) config.head_dim = 128;  // class default, not hidden/heads
}

void make_qwen3_blocks(const LayerKinds& kinds, ModelConfig& config) {
  config.blocks = decoder_blocks(config, kinds);
  for (BlockSpec& block : config.blocks) block.attention.qk_norm = QkNorm::weighted;
}

void read_qwen3(ConfigReader& in, ModelConfig& config) {
  const std::vector<bool> windowed = read_layer_windows(in, config);
  read_attention(in, config);
  make_qwen3_blocks({.windowed = windowed}, config);
}

void write_qwen3(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
  write_layer_windows(config, json);
}

void read_qwen3_moe(ConfigReader& in, ModelConfig& config) {
  // Defaults of Transformers' Qwen3MoeConfig.
  const bool has_head_dim = in.find("head_dim") != nullptr;
  read_switched_window(in, config);
  read_attention(in, config);
  if (!has_head_dim) config.head_dim = std::max<std::int64_t>(1, config.hidden_size / config.num_attention_heads);
  if (in.find("num_key_value_heads") == nullptr) config.num_key_value_heads = 4;
  ExpertsSpec& experts = config.experts;
  const std::string_view count = in.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
  experts.count = in.integer(count, 128, 1, kMaxExperts);
  experts.per_token = in.integer("num_experts_per_tok", 8, 1, kMaxExperts);
  experts.intermediate_size = in.integer("moe_intermediate_size", 768, 1, kMaxDimension);
  experts.normalize = in.boolean("norm_topk_prob", false);
  const std::vector<bool> sparse = read_sparse_layers(in, config);
  read_router_losses(in, config);
  make_qwen3_blocks({.sparse = sparse}, config);
}

void write_qwen3_moe(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
  if (config.sliding_window > 0) write_sliding_window(config, json);
  json.set("num_experts", config.experts.count);
  json.set("num_experts_per_tok", config.experts.per_token);
  json.set("moe_intermediate_size", config.experts.intermediate_size);
  json.set("norm_topk_prob", config.experts.normalize);
  write_sparse_layers(config, json);
}

}  // namespace

extern const ModelFamily kQwen3, kQwen3Moe;
const ModelFamily kQwen3{.architecture = "Qwen3ForCausalLM",
                         .model_type = "qwen3",
                         .apply = read_qwen3,
                         .write = write_qwen3,
                         .executes = {"attention_bias", "sliding_window", "use_sliding_window", "layer_types"},
                         .defaults = {.max_position_embeddings = 32768}};

const ModelFamily kQwen3Moe{
    .architecture = "Qwen3MoeForCausalLM",
    .model_type = "qwen3_moe",
    .apply = read_qwen3_moe,
    .write = write_qwen3_moe,
    .executes = {"attention_bias", "sliding_window", "use_sliding_window", "num_experts", "num_local_experts",
                 "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
                 "mlp_only_layers", "router_aux_loss_coef", "output_router_logits"},
    .defaults = {.max_position_embeddings = 32768}};

}  // namespace quench::nn
