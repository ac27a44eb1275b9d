#pragma once
// The differentiable functions of latent attention (nn/attention/latent_attention.h).

#include <utility>

#include "autograd/tape.h"
#include "core/ops/mla_heads.h"

namespace quench::autograd {

// The first `width` columns of x [N,C], and the rest: copies.
std::pair<Variable, Variable> split_columns(const Variable& x, std::int64_t width);

// The first `width` columns of every head of x [N, heads * C]: [N, heads * width]. x itself where that is all of them.
Variable head_columns(const Variable& x, std::int64_t heads, std::int64_t width);

// Queries, keys and values as attention reads them (core/ops/mla_heads.h): [N, 3 * heads * width].
Variable mla_heads(const Variable& q, const Variable& kv, const Variable& key, const MlaHeadsShape& shape,
                   const Tensor& cos, const Tensor& sin, const Tensor& positions);

}  // namespace quench::autograd
