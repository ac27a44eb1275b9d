#pragma once
// Products of few rows of bf16 on the tensor cores, which only read the weight: the linears of token-by-token
// generation.

#include "core/ops/packed_linear.h"

namespace quench {
struct AddedNorm;
}

namespace quench::cuda {

// Whether packed_tiles() takes the product: x in bf16, rows of the weight in pieces of 64 bytes of one group each.
[[nodiscard]] bool packed_tiles_take(const Tensor& x, const PackedMatrix& weight);
// `gated`: gated_packed_linear, for one row of x. `norm`: normed_linear, for one row.
void packed_tiles(const PackedLinearArgs& args, bool gated, const AddedNorm* norm = nullptr);

// y = x W^T (+ bias) for a weight in bf16, `gated`: gated_linear. False: it does not take them; x, weight and y are
// those of gemv.h or gated_linear.h.
class OpLaunch;
[[nodiscard]] bool value_tiles(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& bias, bool gated,
                               const OpLaunch& launch, const AddedNorm* norm = nullptr);

}  // namespace quench::cuda
