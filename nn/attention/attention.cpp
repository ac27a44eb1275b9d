#include "nn/attention/attention.h"

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
    : attend_{.layout = {config.num_attention_heads, config.num_key_value_heads, config.head_dim},
              .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
              .window = config.sliding_window,
              .layer = layer},
      eps_(config.rms_norm_eps),
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
  const autograd::QkvLayout& layout = attend_.layout;
  Variable qkv = qkv_proj_.forward(x);
  if (q_norm_) qkv = autograd::qk_norm(qkv, q_norm_->weight.weight(), k_norm_->weight.weight(), layout, eps_);
  qkv = autograd::rope(qkv, layout, context.rope.cos, context.rope.sin, context.positions);
  return o_proj_.forward(attend(qkv, attend_, context));
}

}  // namespace quench::nn
