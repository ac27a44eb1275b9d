#include "nn/models/decoder_block.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "nn/experts/moe.h"

namespace quench::nn {
namespace {

bool flag_of(const std::vector<bool>& layers, std::int64_t layer) {
  return layers.empty() || layers[static_cast<std::size_t>(layer)];
}

}  // namespace

BlockSpec decoder_block(const ModelConfig& config, std::int64_t layer, const LayerKinds& kinds) {
  BlockSpec block{.layer = layer};
  block.attention = {.make = make_sublayer<Attention>,
                     .norm = {"input_layernorm", config.rms_norm_eps},
                     .heads = config.num_attention_heads,
                     .kv_heads = config.num_key_value_heads,
                     .key_dim = config.head_dim,
                     .value_dim = config.head_dim,
                     .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                     .window = flag_of(kinds.windowed, layer) ? config.sliding_window : 0,
                     .qk_form = config.rms_norm_eps,
                     .qkv_bias = config.qkv_bias,
                     .output_bias = config.output_bias};
  if (flag_of(kinds.rotated, layer)) {
    const RopeScaling scaling = block.attention.window > 0 ? config.local_rope.value_or(config.rope) : config.rope;
    block.attention.rotary = RotarySpec{
        .scaling = scaling, .dim = scaling.rotated(config.head_dim), .max_positions = config.max_position_embeddings};
  }
  block.feed_forward = {.make = make_sublayer<Mlp>,
                        .norm = {"post_attention_layernorm", config.rms_norm_eps},
                        .intermediate_size = config.intermediate_size,
                        .bias = config.mlp_bias};
  if (config.experts.count > 0 && flag_of(kinds.sparse, layer)) {
    block.feed_forward.make = make_sublayer<MoE>;
    block.feed_forward.experts = config.experts;
  }
  return block;
}

std::vector<BlockSpec> decoder_blocks(const ModelConfig& config, const LayerKinds& kinds) {
  std::vector<BlockSpec> blocks;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    blocks.push_back(decoder_block(config, layer, kinds));
  return blocks;
}

}  // namespace quench::nn
