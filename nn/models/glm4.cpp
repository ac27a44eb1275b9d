// GLM-4-0414 (Hugging Face Transformers, modeling_glm4): RoPE on adjacent pairs in a part of each head, norms before
// and after the sublayers, gate and up projection stored as one.

#include "nn/models/decoder_block.h"
#include "nn/spec/model_family.h"

namespace quench::nn {
namespace {

void read_glm4(ConfigReader& in, ModelConfig& config) {
  config.qkv_bias = in.boolean("attention_bias", true);
  config.blocks = decoder_blocks(config);
  for (BlockSpec& block : config.blocks) {
    block.attention.rotary->interleaved = true;
    block.attention.post_norm = NormSpec{"post_self_attn_layernorm", config.rms_norm_eps};
    block.feed_forward.post_norm = NormSpec{"post_mlp_layernorm", config.rms_norm_eps};
    block.feed_forward.fused_storage = true;
  }
}

void write_glm4(const ModelConfig& config, Json& json) {
  json.set("attention_bias", config.qkv_bias);
}

}  // namespace

extern const ModelFamily kGlm4;
const ModelFamily kGlm4{.architecture = "Glm4ForCausalLM",
                        .model_type = "glm4",
                        .apply = read_glm4,
                        .write = write_glm4,
                        .members = {{.name = "partial_rotary_factor",
                                     .type = ConfigMember::Type::positive_number,
                                     .help = "Share of a head that is rotated, its first elements (GLM-4, Phi-3).",
                                     .refusal = "a rotation of a part of each head",
                                     .neutral = "[1]"}},
                        .executes = {"attention_bias"},
                        .defaults = {.max_position_embeddings = 131072,
                                     .rms_norm_eps = 1.5625e-7,
                                     .partial_rotary_factor = 0.5,
                                     .vocab_size = 151552,
                                     .hidden_size = 4096,
                                     .intermediate_size = 13696,
                                     .num_hidden_layers = 40,
                                     .num_attention_heads = 32,
                                     .num_key_value_heads = 2,
                                     .head_dim = 128}};

}  // namespace quench::nn
