#pragma once
// Differentiable functions of MLA.

#include <utility>

#include "autograd/tape.h"
#include "core/ops/mla_heads.h"

namespace quench::autograd {

// Copies of the first `width` columns of x [N,C], and of the rest.
std::pair<Variable, Variable> split_columns(const Variable& x, std::int64_t width);

// First `width` columns of every head of x [N, heads * C]: [N, heads * width]; x itself if width equals C.
Variable head_columns(const Variable& x, std::int64_t heads, std::int64_t width);

// Fused QKV for attention (core/ops/mla_heads.h): [N, 3 * heads * width].
Variable mla_heads(const Variable& q, const Variable& kv, const Variable& key, const MlaHeadsShape& shape,
                   const Tensor& cos, const Tensor& sin, const Tensor& positions);

}  // namespace quench::autograd
