#include "nn/attention.h"

#include <algorithm>
#include <cmath>

namespace quench::nn {

namespace {
// Projections that write into the residual stream start smaller, so that its variance does not grow with depth
// (Radford et al., 2019, section 2.3).
float residual_std(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers));
}
}  // namespace

Attention::Attention(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options)
    : layout_{config.num_attention_heads, config.num_key_value_heads, config.head_dim},
      scale_(1.0f / std::sqrt(static_cast<float>(config.head_dim))),
      window_(config.sliding_window),
      eps_(config.rms_norm_eps),
      layer_(layer),
      qkv_proj_(config.hidden_size, config.qkv_rows(), config.qkv_bias, options, config.initializer_range,
                {{"q_proj", config.num_attention_heads * config.head_dim},
                 {"k_proj", config.num_key_value_heads * config.head_dim},
                 {"v_proj", config.num_key_value_heads * config.head_dim}}),
      o_proj_(config.num_attention_heads * config.head_dim, config.hidden_size, config.output_bias, options,
              residual_std(config)) {
  add_module("qkv_proj", qkv_proj_);
  add_module("o_proj", o_proj_);
  if (config.qk_norm) {
    add_module("q_norm", q_norm_.emplace(config.head_dim, options));
    add_module("k_norm", k_norm_.emplace(config.head_dim, options));
  }
}

Variable Attention::forward(const Variable& x, const ForwardContext& context) const {
  Variable qkv = qkv_proj_.forward(x);
  if (q_norm_) qkv = autograd::qk_norm(qkv, q_norm_->weight.weight(), k_norm_->weight.weight(), layout_, eps_);
  qkv = autograd::rope(qkv, layout_, context.rope.cos, context.rope.sin, context.positions);
  const Variable mixed = context.cache != nullptr
                             ? attend_cached(qkv, context)
                             : autograd::attention(qkv, layout_, context.sequences, scale_, window_);
  return o_proj_.forward(mixed);
}

Variable Attention::attend_cached(const Variable& qkv, const ForwardContext& context) const {
  QUENCH_CHECK(!qkv.requires_grad(), "Attention: a key-value cache has no backward pass");
  const Tensor in = qkv.value();
  const std::int64_t tokens = in.size(0), width = 2 * layout_.kv_heads * layout_.head_dim;
  std::int64_t keys = 0;
  for (const SequenceRange& sequence : context.sequences) keys = std::max(keys, sequence.k_begin + sequence.k_length);
  const KvCache& cache = *context.cache;
  cache.store(layer_, in.narrow(1, in.size(1) - width, width), context.positions);
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor out = Tensor::empty({tokens, layout_.heads * layout_.head_dim}, in.dtype(), in.device());
  quench::attention({.q = autograd::query_view(in, layout_),
                     .k = cache.keys(layer_).narrow(0, 0, keys),
                     .v = cache.values(layer_).narrow(0, 0, keys),
                     .out = out.view({tokens, layout_.heads, layout_.head_dim}),
                     .sequences = context.sequences,
                     .window = window_,
                     .scale = scale_,
                     .last_key = context.length_on_device ? context.positions : Tensor()});
  return Variable(out);
}

}  // namespace quench::nn
