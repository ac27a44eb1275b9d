#pragma once
// Query gradients of attention in two passes over different keys: their sum, and log-sum-exps for both.

#include "core/tensor/tensor.h"

namespace quench::cuda {

// out += x: bf16 [N,heads,D], both with addresses and strides of 16 bytes; sum in f32, one rounding.
void add_rows(const Tensor& x, const Tensor& out);
// f32 [heads,length] from rows of the log-sum-exps of packed sequences, which lie as [N,heads].
[[nodiscard]] Tensor packed_lse_rows(const Tensor& lse, std::int64_t begin, std::int64_t length);

}  // namespace quench::cuda
