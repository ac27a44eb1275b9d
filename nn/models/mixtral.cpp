// Mixtral: Mistral with MoE in every layer.

#include "nn/experts/moe.h"
#include "nn/models/decoder_block.h"
#include "nn/models/sliding_window.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_mixtral(ConfigReader& in, ModelConfig& config) {
  read_sliding_window(in, 0, config);
  // Default of Transformers' MixtralConfig.
  if (in.find("num_key_value_heads") == nullptr) config.num_key_value_heads = 8;
  ExpertsSpec& experts = config.experts;
  experts.count = in.integer("num_local_experts", 8, 1, kMaxExperts);
  experts.per_token = in.integer("num_experts_per_tok", 2, 1, kMaxExperts);
  experts.intermediate_size = config.intermediate_size;
  experts.normalize = true;
  experts.names = {
      .router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2"};
  read_router_losses(in, config);
  config.blocks = decoder_blocks(config);
}

void write_mixtral(const ModelConfig& config, Json& json) {
  write_sliding_window(config, json);
  json.set("num_local_experts", config.experts.count);
  json.set("num_experts_per_tok", config.experts.per_token);
}

}  // namespace

extern const ModelFamily kMixtral;
const ModelFamily kMixtral{.architecture = "MixtralForCausalLM",
                           .model_type = "mixtral",
                           .apply = read_mixtral,
                           .write = write_mixtral,
                           .executes = {"sliding_window", "num_local_experts", "num_experts_per_tok",
                                        "router_aux_loss_coef", "output_router_logits"},
                           .defaults = {.max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 1e6}};

}  // namespace quench::nn
