#include "nn/attention/latent_attention.h"

#include <cmath>

#include "autograd/functions_mla.h"
#include "nn/attention/rope_scale.h"

namespace quench::nn {
namespace {

// Independent of rms_norm_eps, as in Transformers' DeepseekV3Attention.
constexpr float kLatentEps = 1e-6f;

}  // namespace

LatentAttention::LatentAttention(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options)
    : shape_{.heads = config.num_attention_heads,
             .plain = config.mla.nope_dim,
             .rotary = config.mla.rotary_dim,
             .value = config.mla.value_dim,
             .interleaved = config.mla.interleaved},
      attend_{
          .layout = {shape_.heads, shape_.heads, shape_.width()},
          .scale = static_cast<float>(rope_score_factor(config.rope) / std::sqrt(static_cast<double>(shape_.width()))),
          .layer = layer},
      kv_rank_(config.mla.kv_rank),
      q_proj_(config.mla.query_rank > 0 ? config.mla.query_rank : config.hidden_size, shape_.heads * shape_.width(),
              false, options, config.initializer_range),
      kv_a_proj_(config.hidden_size, kv_rank_ + shape_.rotary, config.mla.bias, options, config.initializer_range),
      kv_a_norm_(kv_rank_, kLatentEps, options),
      kv_b_proj_(kv_rank_, shape_.heads * (shape_.plain + shape_.value), false, options, config.initializer_range),
      o_proj_(shape_.heads * shape_.value, config.hidden_size, config.mla.bias, options,
              config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers))) {
  if (config.mla.query_rank > 0) {
    add_module("q_a_proj", q_a_proj_.emplace(config.hidden_size, config.mla.query_rank, config.mla.bias, options,
                                             config.initializer_range));
    add_module("q_a_layernorm", q_a_norm_.emplace(config.mla.query_rank, kLatentEps, options));
    add_module("q_b_proj", q_proj_);
  } else {
    add_module("q_proj", q_proj_);
  }
  add_module("kv_a_proj_with_mqa", kv_a_proj_);
  add_module("kv_a_layernorm", kv_a_norm_);
  add_module("kv_b_proj", kv_b_proj_);
  add_module("o_proj", o_proj_);
}

Variable LatentAttention::queries(const Variable& x) const {
  if (!q_a_proj_) return q_proj_.forward(x);
  const Variable narrow = q_a_proj_->forward(x);
  return q_proj_.forward(
      autograd::rms_norm(narrow, q_a_norm_->weight(), q_a_norm_->eps(), q_proj_.input_quant_request()));
}

Variable LatentAttention::forward(const Variable& x, const ForwardContext& context) const {
  const auto [narrow, key] = autograd::split_columns(kv_a_proj_.forward(x), kv_rank_);
  const Variable kv = kv_b_proj_.forward(
      autograd::rms_norm(narrow, kv_a_norm_.weight(), kv_a_norm_.eps(), kv_b_proj_.input_quant_request()));
  const Variable qkv =
      autograd::mla_heads(queries(x), kv, key, shape_, context.rope.cos, context.rope.sin, context.positions);
  return o_proj_.forward(autograd::head_columns(attend(qkv, attend_, context), shape_.heads, shape_.value));
}

}  // namespace quench::nn
