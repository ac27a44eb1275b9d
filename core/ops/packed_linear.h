#pragma once
// Weight-only quantized linear (packed_matrix.h), f32 accumulators.

#include "core/device/kernel_slot.h"
#include "core/tensor/packed_matrix.h"

namespace quench {

struct PackedLinearArgs {
  Tensor x;             // [M,K], contiguous; f32/bf16
  PackedMatrix weight;  // [N,K]
  Tensor y;             // [M,N]; dtype of x or f32; contiguous columns
  Tensor bias{};        // [N], dtype of x, optional
};
// One rounding to y's dtype. 1 <= M <= packed_kernel_rows().
extern constinit KernelSlot<PackedLinearArgs> packed_linear_slot;
// Largest M of kernels that read the weight for every row.
inline constexpr std::int64_t kPackedRows = 4;
// Largest M of a GPU's kernels, which read the weight once.
inline constexpr std::int64_t kPackedGemmRows = 64;
// Largest M that the device's kernels take.
[[nodiscard]] inline std::int64_t packed_kernel_rows(Device device) {
  return device.is_cpu() ? kPackedRows : kPackedGemmRows;
}

// GEMM of dynamically quantized int8 inputs, 1 <= M <= kPackedRows: exact integer sums per weight group; scales and
// zero points in f32.
struct PackedIntegerLinearArgs {
  Tensor x;              // i8 [M,K], contiguous
  Tensor scales;         // f32 [M,1]
  Tensor zero_points{};  // f32 [M,1]; undefined: 0. x = (code - zero point) * scale
  PackedMatrix weight;
  Tensor weight_sums;  // f32 [N]: packed_row_sums()
  Tensor y;            // f32/bf16 [M,N]; contiguous columns
  Tensor bias{};       // [N], dtype of y, optional
};
extern constinit KernelSlot<PackedIntegerLinearArgs> packed_integer_linear_slot;
// i4/i8 values, group size a multiple of 8, at least four rows, and a device kernel.
[[nodiscard]] bool has_integer_products(const PackedMatrix& weight);
// Throws invalid_argument unless has_integer_products().
void packed_integer_linear(const PackedIntegerLinearArgs& args);
// Sums of the dequantized rows, f32 [N].
[[nodiscard]] Tensor packed_row_sums(const PackedMatrix& weight);

// out [N,K] contiguous, f32/bf16, computed in f32.
struct UnpackArgs {
  PackedMatrix weight;
  Tensor out;
};
extern constinit KernelSlot<UnpackArgs> unpack_slot;

// y = x W^T (+ bias).
void packed_linear(const PackedLinearArgs& args);
// Any M, by kernels of kPackedRows rows, or for many rows by GEMMs of slices dequantized to the dtype of x.
void packed_linear_in_parts(const PackedLinearArgs& args);
// Dequantizes.
void unpack(const UnpackArgs& args);

}  // namespace quench
