#pragma once
// Differentiable functions of plain tensors, for networks of one's own: products, softmax, GELU, means, slices and
// concatenations. Values are contiguous, f32 or bf16; arithmetic is in f32 with one rounding. Each result is a new
// tensor: no argument is written. Sums have a fixed order. Errors: invalid_argument with function and shapes.

#include <cstdint>
#include <vector>

#include "autograd/tape.h"
#include "core/ops/basic/gelu.h"

namespace quench::autograd {

// a * b elementwise, in the shape of a. b has the dtype of a, and its shape or [C]: one factor for each element of the
// last axis of a. Gradients: b * dy, and a * dy (for [C] summed in f32 over the other axes).
Variable mul(const Variable& a, const Variable& b);

// Operands of matmul() that are read transposed.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// GEMM (core/ops/gemm.h): op(a) [M,K] * op(b) [K,N] = [M,N], of one dtype. Gradients: dy op(b)^T and op(a)^T dy.
Variable matmul(const Variable& a, const Variable& b, const MatmulOptions& options = {});

// Softmax over the last axis of x, rank 1 or more. Gradient: y (dy - sum(dy y)).
Variable softmax(const Variable& x);

// GELU, elementwise: GeluForm says tanh approximation or exact, and the source.
Variable gelu(const Variable& x, GeluForm form = GeluForm::tanh);

// Mean of all elements of x, rank 1 or more, at least one element: f32 [1], which may be the root of a backward pass.
// Sums over the last axis' columns in f32, then in f64. Gradient: dy / count for each element.
Variable mean(const Variable& x);

// Mean of the rows of x [N,C], N > 0: [1,C], in the dtype of x, summed in f32. Gradient: dy / N for each row.
Variable mean_rows(const Variable& x);

// `scale` times the sum over rows of logsumexp(logits) - logits[label], logits [N,C] and labels i32 [N]: f32 [1], which
// may be the root of a backward pass. Rows with label kIgnoreLabel count 0. Softmax in f32. Gradient: scale * (softmax
// - onehot) * dy; it is computed with the value.
Variable cross_entropy(const Variable& logits, const Tensor& labels, float scale = 1.0f);

// Elements [first, first + length) of axis `axis` of x; negative axes count from the end. Gradient: dy there, 0
// elsewhere.
Variable slice(const Variable& x, int axis, std::int64_t first, std::int64_t length);

// Parts next to each other along axis `axis`, in their order. One dtype; equal sizes of the other axes; negative axes
// count from the end. Gradients: the part's elements of dy.
Variable concat(const std::vector<Variable>& parts, int axis);

}  // namespace quench::autograd
