#pragma once
// What the linear layers of experts read, what they keep of it for the weight's gradient, and where gradients go.

#include <functional>
#include <string_view>

#include "autograd/functions_moe.h"
#include "core/ops/experts/grouped_float8.h"

namespace quench::recipes {

// The rows as they lie in x [R,K], or as copies of the tokens x [N,K].
[[nodiscard]] GroupRows rows_of(const Tensor& x, const autograd::TokenPermutation& rows, bool tokens);
// The rows themselves: x, or a new tensor.
[[nodiscard]] Tensor copied(const GroupRows& rows);

// Whether the codes of the rows are less to keep than x. They are not where the backward pass finds x without it being
// kept for this layer, and where a token stands in several rows.
[[nodiscard]] bool codes_save_memory(const autograd::Variable& x, const GroupRows& rows);
// Whether the function that made the rows x of experts writes them once more on its way back, as SwiGLU does: then
// nothing of x is kept, whatever the level of recomputation (Saved::recomputed).
[[nodiscard]] bool is_recomputed_by_producer(const autograd::Variable& x, bool tokens);
// x for the backward pass: the way to make it again, or the values.
[[nodiscard]] autograd::Saved saved_input(const autograd::Variable& x, bool recomputed);

// [E,N,K] of a weight [E*N,K] of `experts` experts. Throws invalid_argument, naming the kernel, where x, which is
// [R,K], does not fit.
[[nodiscard]] Shape expert_matrices(std::string_view kernel, const Tensor& x, const autograd::Weight& weight,
                                    std::int64_t experts);

// What a product makes: `product` writes its rows [R,width], one for each of `operand` and of its type. With `sums` the
// result is the sum over each token's rows, [N,width]; else it is the rows.
[[nodiscard]] Tensor rows_or_sums(const GroupRows& operand, std::int64_t width, const autograd::TokenPermutation& rows,
                                  bool sums, const std::function<void(const Tensor& of_rows)>& product);

// Ends a use of dw that has begun: `product` writes c = beta c + the gradient, c [E,N,K] over dw's values. All of dw is
// 0 then where `mask` has 0.
void finish_weight_gradient(autograd::Gradient& dw, const Shape& matrices,
                            const std::function<void(const Tensor& c, float beta)>& product, const Tensor& mask = {});

}  // namespace quench::recipes
