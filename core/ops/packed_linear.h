#pragma once
// Products with weights that stay packed (core/tensor/packed_matrix.h), and their values. Activations and sums are in
// high precision: the codes are only another form of the weight.

#include "core/device/kernel_slot.h"
#include "core/tensor/packed_matrix.h"

namespace quench {

struct PackedLinearArgs {
  Tensor x;             // [M,K], contiguous; f32 or bf16
  PackedMatrix weight;  // [N,K]
  Tensor y;             // [M,N]; dtype of x, or f32; rows may be strided
  Tensor bias;          // [N] in the dtype of x, or undefined
};
// For 1 <= M <= kPackedRows: bound by reading the codes once. Accumulates in f32, one rounding to y's dtype.
extern constinit KernelSlot<PackedLinearArgs> packed_linear_slot;
inline constexpr std::int64_t kPackedRows = 4;

// out [N,K] contiguous, f32 or bf16: the weight's values, computed in f32.
struct UnpackArgs {
  PackedMatrix weight;
  Tensor out;
};
extern constinit KernelSlot<UnpackArgs> unpack_slot;

// y = x W^T (+ bias). More rows than kPackedRows take the weight's values in the dtype of x, unpacked piece by piece,
// and a plain product of those. Throws invalid_argument naming what does not fit.
void packed_linear(const PackedLinearArgs& args);
void unpack(const UnpackArgs& args);

}  // namespace quench
