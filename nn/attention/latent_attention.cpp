#include "nn/attention/latent_attention.h"

#include "autograd/functions_mla.h"
#include "nn/modules/initialize.h"

namespace quench::nn {

LatentAttention::LatentAttention(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options)
    : LatentAttention(config, block, *block.attention.mla, options) {}

LatentAttention::LatentAttention(const ModelConfig& config, const BlockSpec& block, const MlaSpec& mla,
                                 const ParameterOptions& options)
    : shape_{.heads = block.attention.heads,
             .plain = mla.nope_dim,
             .rotary = mla.rotary_dim,
             .value = mla.value_dim,
             .interleaved = block.attention.rotary->interleaved},
      attend_{.layout = {shape_.heads, shape_.heads, shape_.width()},
              .scale = static_cast<float>(block.attention.scale),
              .layer = block.layer},
      kv_rank_(mla.kv_rank),
      q_proj_(mla.query_rank > 0 ? mla.query_rank : config.hidden_size, shape_.heads * shape_.width(),
              {.init_std = config.initializer_range, .parameters = options}),
      kv_a_proj_(config.hidden_size, kv_rank_ + shape_.rotary,
                 {.bias = mla.bias, .init_std = config.initializer_range, .parameters = options}),
      kv_a_norm_(kv_rank_, mla.norm_eps, options),
      kv_b_proj_(kv_rank_, shape_.heads * (shape_.plain + shape_.value),
                 {.init_std = config.initializer_range, .parameters = options}),
      o_proj_(shape_.heads * shape_.value, config.hidden_size,
              {.bias = mla.bias, .init_std = residual_init_std(config), .parameters = options}) {
  if (mla.query_rank > 0) {
    add_module("q_a_proj",
               q_a_proj_.emplace(
                   config.hidden_size, mla.query_rank,
                   LinearOptions{.bias = mla.bias, .init_std = config.initializer_range, .parameters = options}));
    add_module("q_a_layernorm", q_a_norm_.emplace(mla.query_rank, mla.norm_eps, options));
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
      autograd::rms_norm(narrow, q_a_norm_->weight(), q_a_norm_->form(), q_proj_.sole_input_quant_request()));
}

Variable LatentAttention::forward(const Variable& x, const ForwardContext& context) const {
  const auto [narrow, key] = autograd::split_columns(kv_a_proj_.forward(x), kv_rank_);
  const Variable kv = kv_b_proj_.forward(
      autograd::rms_norm(narrow, kv_a_norm_.weight(), kv_a_norm_.form(), kv_b_proj_.sole_input_quant_request()));
  const RopeTable& table = context.rotation(attend_.layer);
  const Variable qkv = autograd::mla_heads(queries(x), kv, key, shape_, table.cos, table.sin, context.rotation_rows);
  return o_proj_.forward(autograd::head_columns(attend(qkv, attend_, context), shape_.heads, shape_.value));
}

}  // namespace quench::nn
