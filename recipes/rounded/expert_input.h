#pragma once
// What the linear layers of experts read, what they keep of it for the weight's gradient, and where gradients go.

#include <functional>
#include <string_view>

#include "autograd/functions_moe.h"
#include "core/ops/experts/grouped_float8.h"

namespace quench::recipes {

// The rows as they lie in x [R,K], or as copies of the tokens x [N,K].
[[nodiscard]] GroupRows rows_of(const Tensor& x, const autograd::ExpertRows& rows, bool tokens);
// The rows themselves: x, or a new tensor.
[[nodiscard]] Tensor copied(const GroupRows& rows);

// Whether the codes of the rows are less to keep than x. They are not where the backward pass finds x without it being
// kept for this layer, and where a token stands in several rows.
[[nodiscard]] bool codes_save_memory(const autograd::Variable& x, const GroupRows& rows);

// [E,N,K] of a weight [E*N,K] of `experts` experts. Throws invalid_argument, naming the kernel, where x, which is
// [R,K], does not fit.
[[nodiscard]] Shape expert_matrices(std::string_view kernel, const Tensor& x, const autograd::Weight& weight,
                                    std::int64_t experts);

// Adds the gradient of x to dx. `product` writes that of the rows, [R,K] in the type of dy [R,N]; with `tokens` x is
// [N,K], and each of its rows gets the sum over its copies. What is added is 0 where `mask` (core/ops/quantize/
// quantize_int.h) has 0; undefined: nowhere.
void contribute_rows(autograd::Gradient& dx, const Shape& x_shape, const autograd::ExpertRows& rows, bool tokens,
                     const Tensor& dy, const std::function<void(const Tensor& of_rows)>& product,
                     const Tensor& mask = {});

// Ends a use of dw that has begun: `product` writes c = beta c + the gradient, c [E,N,K] over dw's values. All of dw is
// 0 then where `mask` has 0.
void finish_weight_gradient(autograd::Gradient& dw, const Shape& matrices,
                            const std::function<void(const Tensor& c, float beta)>& product, const Tensor& mask = {});

}  // namespace quench::recipes
