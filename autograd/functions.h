#pragma once
// Differentiable functions. Activations are [N, features] of N = B*T tokens, f32 or bf16. Weights are acquired per
// pass. Shapes, aliasing and errors are those of core/ops/.

#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/sequence_exchange.h"
#include "autograd/tape.h"
#include "core/ops/attention.h"
#include "core/ops/loss/lm_head_loss.h"
#include "core/ops/norm.h"

namespace quench::autograd {

// x [N,K] * weight [M,K]^T + bias [M] if defined: [N,M]; accumulated in place onto the constant `onto` [N,M], in the
// dtype of x, if defined.
Variable linear(const Variable& x, const Weight& weight, const Weight& bias = {}, const Tensor& onto = {});

// a + b, of one shape and dtype; neither is written.
Variable add(const Variable& a, const Variable& b);

// [N,A+B] of a [N,A] and b [N,B], of one dtype.
Variable concatenate_columns(const Variable& a, const Variable& b);

// factor * x, out of place.
Variable scale(const Variable& x, float factor);

// Rows of table [V,H] for ids i32 [N].
Variable embedding(const Weight& table, const Tensor& ids);

// RMSNorm over the last axis of x [N,H]. `wanted`: fused quantization outputs, answered in fused().
Variable rms_norm(const Variable& x, const Weight& weight, const RmsNormForm& form,
                  const QuantOutputRequest& wanted = {});

// {sum = residual + delta, rms_norm(sum)}, fused; `wanted` applies to the second.
std::pair<Variable, Variable> add_rms_norm(const Variable& residual, const Variable& delta, const Weight& weight,
                                           const RmsNormForm& form, const QuantOutputRequest& wanted = {});

// Geometry of a fused QKV matrix [N, (heads + 2*kv_heads) * head_dim], heads in the order q, k, v.
struct QkvLayout {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  [[nodiscard]] std::int64_t width() const noexcept { return (heads + 2 * kv_heads) * head_dim; }
};

// Views of a fused QKV matrix: [N,heads,D] each.
[[nodiscard]] Tensor query_view(const Tensor& qkv, const QkvLayout& layout);
// [N,kv_heads,D] of a fused QKV matrix.
[[nodiscard]] Tensor key_view(const Tensor& qkv, const QkvLayout& layout);
// [N,kv_heads,D] of a fused QKV matrix.
[[nodiscard]] Tensor value_view(const Tensor& qkv, const QkvLayout& layout);

// RMSNorm of query heads with q_weight [D] and key heads with k_weight [D] (Qwen3), or of all query heads at once with
// q_weight [heads * D] and all key heads with k_weight [kv_heads * D] (OLMo 2), as the weights' sizes say; out of
// place.
Variable qk_norm(const Variable& qkv, const Weight& q_weight, const Weight& k_weight, const QkvLayout& layout,
                 const RmsNormForm& form);

// Heads and pairing of rope().
struct RotationOptions {
  bool keys = true;          // query and key heads; else query heads only
  bool interleaved = false;  // pairing of rotated elements (core/ops/rope.h)
};

// RoPE of the first R <= D elements of query and key heads IN PLACE: no other function may need the value of `qkv`.
// cos, sin f32 [positions,R/2]; positions i32 [N].
Variable rope(const Variable& qkv, const QkvLayout& layout, const Tensor& cos, const Tensor& sin,
              const Tensor& positions, const RotationOptions& options = {});

// The values of a small weight, in a tensor of their own; undefined for an undefined weight.
[[nodiscard]] Tensor as_f32(const Weight& weight);

// Rows of qkv read as keys and values, where sequences share some of them, or their keys are on several ranks.
struct KeyRows {
  Tensor rows;     // i32 [M]; k_begin and k_length of sequences count these
  Tensor readers;  // i32 [N,k]: elements of `rows` that are row n, in order; -1: none
  // Not null: `rows` and `readers` count the rows of all its ranks, in rank order. Must outlive the backward pass.
  const SequenceExchange* exchange = nullptr;
  [[nodiscard]] bool defined() const noexcept { return rows.defined(); }
};

// Causal attention within each sequence over the last `window` keys (0: all); [N, heads*head_dim]. `soft_cap`:
// AttentionArgs::soft_cap. `keys`: rows of qkv in their order if undefined. `sinks`, if defined: [heads],
// AttentionArgs::sinks. In a region that keeps it, computed once (autograd/regions/kept_values.h).
Variable attention(const Variable& qkv, const QkvLayout& layout, std::vector<SequenceRange> sequences, float scale,
                   std::int64_t window = 0, float soft_cap = 0.0f, const KeyRows& keys = {}, const Weight& sinks = {});

// x, to whose gradient the backward pass adds `gradient`, of its shape and dtype: of a loss whose value is no part of
// the root. `gradient` is overwritten then.
Variable add_gradient(const Variable& x, const Tensor& gradient);

// f32 [1], the value of `loss`: a root whose backward pass is that of `other` too.
Variable join_losses(const Variable& loss, const Variable& other);

// Sum of losses of hidden [N,H] * weight [V,H]^T against labels i32 [N], times `scale`: f32 [1]. Gradients are computed
// in the forward pass, by chunk of logits, so the result must be the root of the backward pass, or one of
// join_losses(). `losses`, if not null: f32 [N]. `loss`: cross_entropy if null.
Variable lm_head_loss(const Variable& hidden, const Weight& weight, const Tensor& labels, float scale,
                      const LmHeadLossOptions& options = {}, Tensor* losses = nullptr, HeadGemms* gemms = nullptr,
                      LogitsLoss* loss = nullptr);

}  // namespace quench::autograd
