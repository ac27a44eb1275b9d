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

// For 1 <= M <= kPackedRows beside inputs that are 8-bit integers by row: products of codes, with exact sums in each
// group of the weight, before scales and zero points are applied in f32.
struct PackedIntegerLinearArgs {
  Tensor x;             // i8 [M,K], contiguous
  Tensor scales;        // f32 [M,1] of x
  Tensor zero_points;   // f32 [M,1], or undefined: 0. A value of x is (code - zero point) * scale
  PackedMatrix weight;  // [N,K]
  Tensor weight_sums;   // f32 [N]: the sums of the weight's rows, packed_row_sums()
  Tensor y;             // f32 or bf16 [M,N]; rows may be strided
  Tensor bias;          // [N] in the dtype of y, or undefined
};
extern constinit KernelSlot<PackedIntegerLinearArgs> packed_integer_linear_slot;
// Whether there is such a kernel for a weight: its device, integer codes, groups that are multiples of 8 elements, at
// least four rows.
[[nodiscard]] bool has_integer_products(const PackedMatrix& weight);
void packed_integer_linear(const PackedIntegerLinearArgs& args);
// f32 [N]
[[nodiscard]] Tensor packed_row_sums(const PackedMatrix& weight);

// out [N,K] contiguous, f32 or bf16: the weight's values, computed in f32.
struct UnpackArgs {
  PackedMatrix weight;
  Tensor out;
};
extern constinit KernelSlot<UnpackArgs> unpack_slot;

// y = x W^T (+ bias). A few times kPackedRows are computed piece by piece; more rows take the weight's values in the
// dtype of x, unpacked piece by piece, and a plain product of those. Throws invalid_argument naming what does not fit.
void packed_linear(const PackedLinearArgs& args);
void unpack(const UnpackArgs& args);

}  // namespace quench
