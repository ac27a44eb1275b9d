#include "nn/models/decoder_block.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "nn/experts/moe.h"

namespace quench::nn {
namespace {

bool flag_of(const std::vector<bool>& layers, std::int64_t layer, bool otherwise) {
  return layers.empty() ? otherwise : layers[static_cast<std::size_t>(layer)];
}

}  // namespace

BlockSpec decoder_block(const ModelConfig& config, std::int64_t layer) {
  const LayerAttention& layers = config.layer_attention;
  const ScaleConfig& scales = config.scales;
  BlockSpec block{.layer = layer, .residual_multiplier = static_cast<float>(scales.residual)};
  block.attention = {.make = make_sublayer<Attention>,
                     .norm = {"input_layernorm", config.rms_norm_eps},
                     .heads = config.num_attention_heads,
                     .kv_heads = config.num_key_value_heads,
                     .key_dim = config.head_dim,
                     .value_dim = config.head_dim,
                     .scale = scales.attention > 0 ? static_cast<float>(scales.attention)
                                                   : 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                     .soft_cap = static_cast<float>(scales.attention_soft_cap),
                     .window = flag_of(layers.windowed, layer, true) ? config.sliding_window : 0,
                     .chunk = flag_of(layers.chunked, layer, false) ? layers.chunk : 0,
                     .qk_form = config.rms_norm_eps,
                     .qkv_bias = config.qkv_bias,
                     .output_bias = config.output_bias};
  if (flag_of(layers.rotated, layer, true)) {
    const RopeScaling scaling = block.attention.window > 0 ? config.local_rope.value_or(config.rope) : config.rope;
    block.attention.rotary = RotarySpec{
        .scaling = scaling, .dim = scaling.rotated(config.head_dim), .max_positions = config.max_position_embeddings};
  } else if (layers.temperature != 0.0) {
    block.attention.temperature = QueryTemperature{.scale = layers.temperature, .step = layers.temperature_step};
  }
  block.feed_forward = {.make = make_sublayer<Mlp>,
                        .norm = {"post_attention_layernorm", config.rms_norm_eps},
                        .intermediate_size = config.intermediate_size,
                        .bias = config.mlp_bias};
  if (config.experts.in_layer(layer)) {
    block.feed_forward.make = make_sublayer<MoE>;
    block.feed_forward.experts = config.experts;
  }
  return block;
}

}  // namespace quench::nn
