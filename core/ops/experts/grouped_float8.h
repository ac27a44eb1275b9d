#pragma once
// Grouped float8 GEMMs and their quantization; semantics of TorchAO's MoE training.
//
// e4m3 with f32 encode scales along K, stored K-major: rowwise for forward and dgrad, columnwise per group for wgrad.
// Ends are multiples of kFloat8GroupAlignment.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// K of one tensor core instruction. Zero rows change no scale.
inline constexpr std::int64_t kFloat8GroupAlignment = 32;

// Rows dispatched on the fly: row r is x[pairs[r] / choices], or 0 if pairs[r] is -1 (token_permutation.h); x[r]
// without pairs.
struct GroupRows {
  Tensor x;      // [N,C], f32 or bf16, contiguous
  Tensor ends;   // i32 [E]
  Tensor pairs;  // i32 [R], optional
  std::int64_t choices = 1;

  [[nodiscard]] std::int64_t rows() const { return pairs.defined() ? pairs.size(0) : x.size(0); }
};

// Columnwise per group: [R,C] transposed.
struct GroupColumns {
  Tensor codes;   // f8_e4m3 [C,R]; 0 after the last group
  Tensor scales;  // f32 [E,C]

  [[nodiscard]] bool defined() const noexcept { return codes.defined(); }
};

// Rowwise quantization, and columnwise amax per group in the same pass.
struct GroupRowsCastArgs {
  GroupRows rows;
  QuantTensor out;     // [R,C], e4m3 rowwise
  Tensor column_amax;  // f32 [E,C], optional, in and out: maximum with its old values
  bool power_of_two = false;
};
// Columnwise quantization per group with the given scales.
struct GroupColumnsCastArgs {
  GroupRows rows;
  GroupColumns out;
};

// C[r] = A[r] * B[e]^T for row r of group e; rows after the last group become 0.
struct GroupedFloat8GemmArgs {
  QuantTensor a;  // [R,K], e4m3 rowwise
  QuantTensor b;  // [E,N,K], e4m3 rowwise
  Tensor ends;    // i32 [E]
  Tensor c;       // [R,N], bf16 or f32, contiguous
  // false: promoted accumulation every 256 of K.
  bool fast_accumulation = false;
};

// C[e] = A_e^T * B_e + beta * C[e] over the rows of group e, possibly none.
struct GroupedFloat8WgradArgs {
  GroupColumns a;  // of [R,M]
  GroupColumns b;  // of [R,N]
  Tensor ends;     // i32 [E]
  Tensor c;        // [E,M,N], bf16 or f32, contiguous
  float beta = 0.0f;
  bool fast_accumulation = false;
};

// "grouped float8 gemm 4096x(8x1024)x2048 bf16"
[[nodiscard]] std::string op_label(const GroupedFloat8GemmArgs& args);
[[nodiscard]] std::string op_label(const GroupedFloat8WgradArgs& args);

extern constinit KernelSlot<GroupRowsCastArgs> group_rows_cast_slot;
extern constinit KernelSlot<GroupColumnsCastArgs> group_columns_cast_slot;
extern constinit KernelSlot<GroupedFloat8GemmArgs> grouped_float8_gemm_slot;
extern constinit KernelSlot<GroupedFloat8WgradArgs> grouped_float8_wgrad_slot;

// A NaN makes its row, or its column of the group, NaN.
[[nodiscard]] QuantTensor quantize_group_rows(const GroupRows& rows, bool power_of_two, const Tensor& column_amax = {});
[[nodiscard]] GroupColumns quantize_group_columns(const GroupRows& rows, const Tensor& scales);

// Accumulators times reciprocals of both scales in f32, one rounding to c's dtype. GPUs: compute capability 9.0, K and
// N (M) % 16 == 0, else throw unsupported.
void grouped_gemm(const GroupedFloat8GemmArgs& args);
void grouped_wgrad(const GroupedFloat8WgradArgs& args);

}  // namespace quench
