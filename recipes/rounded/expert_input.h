#pragma once
// What the linear layers of experts read, and what they keep of it for the weight's gradient.

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

}  // namespace quench::recipes
