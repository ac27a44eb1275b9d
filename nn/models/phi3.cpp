// Phi-3 and Phi-4 (arXiv:2404.14219, arXiv:2412.08905, arXiv:2503.01743): Llama with projections stored as qkv_proj and
// gate_up_proj, RoPE in a part of each head, RoPE scaling longrope.

#include "nn/models/decoder_block.h"
#include "nn/models/sliding_window.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_phi3(ConfigReader& in, ModelConfig& config) {
  read_sliding_window(in, 0, config);
  using enum RopeScaling::Type;
  if (config.rope.type != standard && config.rope.type != longrope)
    in.fault("rope_scaling", "Phi-3 has longrope (or its older names su and yarn) alone, as in Transformers");
  config.blocks = decoder_blocks(config);
  for (BlockSpec& block : config.blocks) block.attention.fused_storage = block.feed_forward.fused_storage = true;
}

}  // namespace

extern const ModelFamily kPhi3;
const ModelFamily kPhi3{.architecture = "Phi3ForCausalLM",
                        .model_type = "phi3",
                        .apply = read_phi3,
                        .write = write_sliding_window,
                        .executes = {"sliding_window", "partial_rotary_factor"},
                        .defaults = {.max_position_embeddings = 4096,
                                     .rms_norm_eps = 1e-5,
                                     .partial_rotary_factor = 1.0,
                                     .old_longrope = true,
                                     .vocab_size = 32064,
                                     .hidden_size = 3072,
                                     .intermediate_size = 8192,
                                     .num_hidden_layers = 32,
                                     .num_attention_heads = 32}};

}  // namespace quench::nn
