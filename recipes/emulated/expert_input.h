#pragma once
// Inputs and outputs of emulated expert layers.

#include <functional>
#include <string_view>

#include "autograd/functions_moe.h"
#include "core/ops/experts/grouped_float8.h"

namespace quench::recipes {

// Rows of x [R,K], or permuted tokens x [N,K].
[[nodiscard]] GroupRows rows_of(const Tensor& x, const autograd::TokenPermutation& rows, bool tokens);
[[nodiscard]] Tensor copied(const GroupRows& rows);

// True if quantized rows take fewer bytes than x; false where x is free in the backward pass or a token occurs in
// several rows.
[[nodiscard]] bool codes_save_memory(const autograd::Variable& x, const GroupRows& rows);
// True if the producer recomputes x in any case, as a gated activation does: nothing of x is saved (Saved::recomputed).
[[nodiscard]] bool is_recomputed_by_producer(const autograd::Variable& x, bool tokens);
[[nodiscard]] autograd::Saved saved_input(const autograd::Variable& x, bool recomputed);

// [E,N,K]. Throws invalid_argument if x [R,K] does not match.
[[nodiscard]] Shape expert_matrices(std::string_view kernel, const Tensor& x, const autograd::Weight& weight,
                                    std::int64_t experts);

// Output of a grouped GEMM: `product` writes rows [R,width] in the dtype of `operand`. With `sums`, unpermuted to
// [N,width].
[[nodiscard]] Tensor rows_or_sums(const GroupRows& operand, std::int64_t width, const autograd::TokenPermutation& rows,
                                  bool sums, const std::function<void(const Tensor& of_rows)>& product);

// Finishes a begun use of dw: `product` writes c = beta * c + wgrad, c [E,N,K] a view of dw. Then dw = 0 where `mask`
// is 0.
void finish_weight_gradient(autograd::Gradient& dw, const Shape& matrices,
                            const std::function<void(const Tensor& c, float beta)>& product, const Tensor& mask = {});

}  // namespace quench::recipes
