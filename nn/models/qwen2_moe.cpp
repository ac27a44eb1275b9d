// Qwen2-MoE (Qwen1.5-MoE, Qwen2-57B-A14B; arXiv:2407.10671, section 2.2.2): Qwen2 with experts and a shared expert
// under a sigmoid gate.

#include "nn/experts/moe.h"
#include "nn/models/decoder_block.h"
#include "nn/models/sliding_window.h"
#include "nn/models/sparse_layers.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

// Defaults of Transformers' Qwen2MoeConfig.
constexpr std::int64_t kWindowedLayers = 28;

std::vector<bool> read_qwen2_moe_windows(ConfigReader& in, ModelConfig& config) {
  read_switched_window(in, config);
  std::vector<bool> windowed(static_cast<std::size_t>(config.num_hidden_layers), false);
  if (config.sliding_window > 0 && in.find("layer_types") == nullptr) {
    const auto most = static_cast<std::size_t>(in.integer("max_window_layers", kWindowedLayers, 0, kMaxDimension));
    for (std::size_t layer = 0; layer < windowed.size(); ++layer) windowed[layer] = layer % 2 == 0 && layer < most;
  }
  return read_window_types(in, std::move(windowed), config);
}

void read_qwen2_moe(ConfigReader& in, ModelConfig& config) {
  const std::vector<bool> windowed = read_qwen2_moe_windows(in, config);
  config.qkv_bias = in.boolean("qkv_bias", true);
  ExpertsSpec& experts = config.experts;
  const std::string_view count = in.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
  experts.count = in.integer(count, 60, 1, kMaxExperts);
  experts.per_token = in.integer("num_experts_per_tok", 4, 1, kMaxExperts);
  experts.intermediate_size = in.integer("moe_intermediate_size", 1408, 1, kMaxDimension);
  experts.shared_width = in.integer("shared_expert_intermediate_size", 5632, 1, kMaxDimension);
  experts.shared_gate = true;
  experts.names.shared = "shared_expert";
  experts.normalize = in.boolean("norm_topk_prob", false);
  const std::vector<bool> sparse = read_sparse_layers(in, config);
  read_router_losses(in, config);
  config.blocks = decoder_blocks(config, {.windowed = windowed, .sparse = sparse});
}

void write_qwen2_moe(const ModelConfig& config, Json& json) {
  write_layer_windows(config, json);
  json.set("qkv_bias", config.qkv_bias);
  json.set("num_experts", config.experts.count);
  json.set("num_experts_per_tok", config.experts.per_token);
  json.set("moe_intermediate_size", config.experts.intermediate_size);
  json.set("shared_expert_intermediate_size", config.experts.shared_width);
  json.set("norm_topk_prob", config.experts.normalize);
  write_sparse_layers(config, json);
}

}  // namespace

extern const ModelFamily kQwen2Moe;
const ModelFamily kQwen2Moe{
    .architecture = "Qwen2MoeForCausalLM",
    .model_type = "qwen2_moe",
    .apply = read_qwen2_moe,
    .write = write_qwen2_moe,
    .members = {{.name = "qkv_bias",
                 .type = ConfigMember::Type::boolean,
                 .changes_shapes = true,
                 .help = "Biases of query, key and value (Qwen2-MoE).",
                 .refusal = "these biases in this family",
                 .neutral = "[false]"},
                {.name = "shared_expert_intermediate_size",
                 .changes_shapes = true,
                 .help = "Width of the shared expert (Qwen2-MoE).",
                 .refusal = "mixture-of-experts layers in this family",
                 .neutral = "[0]"}},
    .executes = {"sliding_window", "use_sliding_window", "layer_types", "num_experts", "num_local_experts",
                 "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
                 "mlp_only_layers", "router_aux_loss_coef", "output_router_logits"},
    .defaults = {.max_position_embeddings = 32768,
                 .vocab_size = 151936,
                 .hidden_size = 2048,
                 .intermediate_size = 5632,
                 .num_hidden_layers = 24,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 16}};

}  // namespace quench::nn
