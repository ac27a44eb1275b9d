#pragma once
// The differentiable functions. Each one's forward and backward stand together in functions_<topic>.cpp.
//
// Activations are matrices [N, features] of N = B*T flattened tokens, f32 or bf16; which tokens form a sequence is said
// by the SequenceRange lists of core/ops/attention.h. Weights are asked for their values for each pass and kept by
// nobody (autograd/weight.h). Shapes, aliasing and errors are those of the op in core/ops/.

#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "core/ops/attention.h"
#include "core/ops/lm_head_loss.h"

namespace quench::autograd {

// x [N,K] times weight [M,K] transposed, plus bias [M] if defined: [N,M]. With `onto`, [N,M] in the dtype of x, it is
// added to what is there, in its place; that is a constant.
Variable linear(const Variable& x, const Weight& weight, const Weight& bias = {}, const Tensor& onto = {});

// a + b, same shape.
Variable add(const Variable& a, const Variable& b);

// Rows of table [V,H] for ids i32 [N]: [N,H].
Variable embedding(const Weight& table, const Tensor& ids);

// RMSNorm over the last axis of x [N,H]. `wanted` is what the consumer of the result asks for
// (autograd/quant_output_request.h); the result's fused_outputs() has it.
Variable rms_norm(const Variable& x, const Weight& weight, float eps, const QuantOutputRequest& wanted = {});

// {sum = residual + delta, rms_norm(sum)} in one pass; `wanted` of the second.
std::pair<Variable, Variable> add_rms_norm(const Variable& residual, const Variable& delta, const Weight& weight,
                                           float eps, const QuantOutputRequest& wanted = {});

// SwiGLU of gate_up [N,2I]: [N,I]. `known`: its value, where it has been computed and nothing is wanted.
Variable swiglu(const Variable& gate_up, const QuantOutputRequest& wanted = {}, const Tensor& known = {});

// Geometry of a fused query-key-value matrix [N, (heads + 2*kv_heads) * head_dim], heads in the order q, k, v.
struct QkvLayout {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  [[nodiscard]] std::int64_t width() const noexcept { return (heads + 2 * kv_heads) * head_dim; }
};

// Views of the three parts of a fused matrix: [N,heads,D] each.
[[nodiscard]] Tensor query_view(const Tensor& qkv, const QkvLayout& layout);
[[nodiscard]] Tensor key_view(const Tensor& qkv, const QkvLayout& layout);
[[nodiscard]] Tensor value_view(const Tensor& qkv, const QkvLayout& layout);

// RMSNorm of every query head with q_weight [D] and every key head with k_weight [D] (Qwen3); values are copied.
Variable qk_norm(const Variable& qkv, const Weight& q_weight, const Weight& k_weight, const QkvLayout& layout,
                 float eps);

struct RotationOptions {
  bool keys = true;          // query heads and key heads; else query heads alone
  bool interleaved = false;  // which elements are rotated together (core/ops/rope.h)
};

// Rotates query and key heads IN PLACE: the value of `qkv` must be needed by nobody else afterwards (the projection
// that made it does not need it). cos, sin f32 [positions,D/2]; positions i32 [N].
Variable rope(const Variable& qkv, const QkvLayout& layout, const Tensor& cos, const Tensor& sin,
              const Tensor& positions, const RotationOptions& options = {});

// Causal attention within each sequence, over the last `window` keys or, for 0, all; [N, heads*head_dim]. Keeps
// `sequences` for the backward pass.
Variable attention(const Variable& qkv, const QkvLayout& layout, std::vector<SequenceRange> sequences, float scale,
                   std::int64_t window = 0);

// Sum of the cross-entropies of hidden [N,H] times weight [V,H] transposed against labels i32 [N], times `scale`: f32
// [1]. Gradients are made in the forward pass (the logits exist only then, chunk by chunk), so the result must be the
// root of the backward pass. `losses`, if not null, receives the f32 [N] loss of each row.
Variable lm_head_loss(const Variable& hidden, const Weight& weight, const Tensor& labels, float scale,
                      const LmHeadLossOptions& options = {}, Tensor* losses = nullptr, HeadGemms* products = nullptr);

}  // namespace quench::autograd
