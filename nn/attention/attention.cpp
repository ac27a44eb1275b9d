#include "nn/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "core/ops/elementwise.h"

namespace quench::nn {

namespace {
// Smaller initialisation of projections into the residual stream: variance independent of depth (Radford et al., 2019,
// section 2.3).
float residual_std(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers));
}

Tensor ones(std::int64_t size, DType dtype, Device device) {
  const MemoryScope scope(MemoryCategory::parameters);
  if (device.is_meta()) return Tensor::empty({size}, dtype, device);
  const Tensor values = Tensor::empty({size}, DType::f32);
  std::fill_n(values.data<float>(), size, 1.0f);
  const Tensor converted = Tensor::empty({size}, dtype);
  cast({values, converted});
  return converted.to(device);
}
}  // namespace

Attention::Attention(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options)
    : attend_{.layout = {config.num_attention_heads, config.num_key_value_heads, config.head_dim},
              .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
              .window = config.window_of(layer),
              .chunk = config.layer_attention.chunk_of(layer),
              .layer = layer},
      eps_(config.rms_norm_eps),
      qkv_proj_(config.hidden_size, config.qkv_rows(), config.qkv_bias, options, config.initializer_range,
                {{"q_proj", config.num_attention_heads * config.head_dim},
                 {"k_proj", config.num_key_value_heads * config.head_dim},
                 {"v_proj", config.num_key_value_heads * config.head_dim}}),
      o_proj_(config.num_attention_heads * config.head_dim, config.hidden_size, config.output_bias, options,
              residual_std(config)),
      rotated_(config.layer_attention.rotates(layer)),
      interleaved_(config.layer_attention.interleaved) {
  add_module("qkv_proj", qkv_proj_);
  add_module("o_proj", o_proj_);
  if (config.qk_norm) {
    add_module("q_norm", q_norm_.emplace(config.head_dim, options));
    add_module("k_norm", k_norm_.emplace(config.head_dim, options));
  }
  if (rotated_ && config.layer_attention.unit_norm)
    unit_ = Variable(ones(config.head_dim, options.dtype, options.device));
}

Variable Attention::forward(const Variable& x, const ForwardContext& context) const {
  return mix(qkv_proj_.forward(x), context);
}

Variable Attention::forward_unnormed(const Tensor& x, const AddedNorm& norm, const ForwardContext& context) const {
  const auto qkv = qkv_proj_.run_fused({.x = Variable(x), .norm = &norm, .mode = LinearMode::inference});
  return qkv ? mix(qkv->y, context) : Variable();
}

Variable Attention::mix(Variable qkv, const ForwardContext& context) const {
  const autograd::QkvLayout& layout = attend_.layout;
  if (q_norm_) qkv = autograd::qk_norm(qkv, q_norm_->weight.weight(), k_norm_->weight.weight(), layout, eps_);
  // With a KV cache, RoPE with half-split pairs is fused into the attention kernel.
  const bool rotates_on_the_way = rotated_ && context.cache != nullptr && !interleaved_ && !unit_.defined();
  if (rotates_on_the_way) return o_proj_.forward(attend(qkv, attend_, context, context.rope));
  if (rotated_) {
    qkv = autograd::rope(qkv, layout, context.rope.cos, context.rope.sin, context.positions,
                         {.interleaved = interleaved_});
    if (unit_.defined()) qkv = autograd::qk_norm(qkv, unit_, unit_, layout, eps_);
  } else if (context.query_scales.cos.defined()) {
    // Scaling as a rotation by angle 0.
    qkv = autograd::rope(qkv, layout, context.query_scales.cos, context.query_scales.sin, context.positions,
                         {.keys = false});
  }
  return o_proj_.forward(attend(qkv, attend_, context));
}

}  // namespace quench::nn
