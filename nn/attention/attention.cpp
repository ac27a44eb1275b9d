#include "nn/attention/attention.h"

#include <algorithm>

#include "core/ops/elementwise.h"
#include "nn/modules/initialize.h"

namespace quench::nn {

namespace {

Tensor ones(std::int64_t size, DType dtype, Device device) {
  const MemoryScope scope(MemoryCategory::parameters);
  if (device.is_meta()) return Tensor::empty({size}, dtype, device);
  const Tensor values = Tensor::empty({size}, DType::f32);
  std::fill_n(values.data<float>(), size, 1.0f);
  const Tensor converted = Tensor::empty({size}, dtype);
  cast({values, converted});
  return converted.to(device);
}

// Consecutive heads: those of a key-value group are on one rank.
AttentionSpec heads_of_rank(AttentionSpec spec, const TensorPlace& place) {
  spec.heads /= place.count;
  spec.kv_heads /= place.count;
  return spec;
}

}  // namespace

Attention::Attention(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
    : Attention(config, block, heads_of_rank(block.attention, options.tensor), options) {}

Attention::Attention(const ModelConfig& config, const BlockSpec& block, const AttentionSpec& own,
                     const ParameterOptions& options)
    : attend_{.layout = {own.heads, own.kv_heads, own.key_dim},
              .scale = static_cast<float>(own.scale),
              .window = own.window,
              .chunk = own.chunk,
              .layer = block.layer,
              .soft_cap = static_cast<float>(own.soft_cap)},
      qk_form_(own.qk_form),
      qkv_proj_(config.hidden_size, attend_.layout.width(),
                {.bias = own.qkv_bias,
                 .init_std = config.initializer_range,
                 .parameters = options,
                 .parts = own.fused_storage ? std::vector<LinearPart>()
                                            : std::vector<LinearPart>{{"q_proj", own.query_width()},
                                                                      {"k_proj", own.kv_width()},
                                                                      {"v_proj", own.kv_width()}},
                 .split = TensorSplit::rows}),
      o_proj_(own.query_width(), config.hidden_size,
              {.bias = own.output_bias,
               .init_std = residual_init_std(config),
               .parameters = options,
               .split = TensorSplit::columns}),
      rotated_(own.rotary.has_value()),
      interleaved_(rotated_ && own.rotary->interleaved),
      fuses_rotation_(rotated_ && !interleaved_ && own.rotary->dim == own.key_dim) {
  const std::int64_t head_dim = own.key_dim;
  add_module("qkv_proj", qkv_proj_);
  add_module("o_proj", o_proj_);
  const QkNorm qk_norm = own.qk_norm;
  if (qk_norm == QkNorm::weighted || qk_norm == QkNorm::all_heads) {
    const bool all = qk_norm == QkNorm::all_heads;
    add_module("q_norm", q_norm_.emplace(all ? own.query_width() : head_dim, qk_form_, options));
    add_module("k_norm", k_norm_.emplace(all ? own.kv_width() : head_dim, qk_form_, options));
  }
  if (own.sinks) {
    add_parameter("sinks",
                  sinks_.emplace(make_parameter({own.heads}, options, Initializer::normal, config.initializer_range)));
    sinks_->slice.split = TensorSplit::rows;
  }
  if (qk_norm == QkNorm::unweighted) unit_ = Variable(ones(head_dim, options.dtype, options.device));
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
  if (q_norm_) qkv = autograd::qk_norm(qkv, q_norm_->weight(), k_norm_->weight(), layout, qk_form_);
  // With a KV cache, RoPE of whole heads with half-split pairs is fused into the attention kernel.
  const RopeTable& table = context.rotation(attend_.layer);
  const bool rotates_on_the_way = fuses_rotation_ && context.caches_keys() && !unit_.defined();
  const Weight sinks = sinks_ ? sinks_->weight() : Weight();
  if (rotates_on_the_way) return o_proj_.forward(attend(qkv, attend_, context, table, sinks));
  if (rotated_) {
    qkv = autograd::rope(qkv, layout, table.cos, table.sin, context.rotation_rows, {.interleaved = interleaved_});
  } else if (table.cos.defined()) {
    // Scaling as a rotation by angle 0.
    qkv = autograd::rope(qkv, layout, table.cos, table.sin, context.rotation_rows, {.keys = false});
  }
  if (unit_.defined()) qkv = autograd::qk_norm(qkv, unit_, unit_, layout, qk_form_);
  return o_proj_.forward(attend(qkv, attend_, context, {}, sinks));
}

}  // namespace quench::nn
