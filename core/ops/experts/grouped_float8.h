#pragma once
// Grouped products of float8 operands (core/ops/experts/grouped_gemm.h), and the casts that make them.
//
// Operands are e4m3 with f32 encode scales (core/number/float8.h) along the contraction axis, which comes last in the
// codes because tensor cores read it there: each row of x and of the weights in products along their columns; each
// column of each group of rows in the weights' gradient. Groups are as in grouped_gemm.h; their ends are multiples of
// kFloat8GroupAlignment. Semantics are TorchAO's for experts.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// Of the rows of a group: what one instruction of the tensor cores contracts. Rows of zeros change no scale.
inline constexpr std::int64_t kFloat8GroupAlignment = 32;

// The rows of an operand, which may be copies of tokens that nobody has made: row r is x[pairs[r] / choices], or zeros
// where pairs[r] is -1 (core/ops/experts/token_permutation.h). Without pairs it is x[r].
struct GroupRows {
  Tensor x;      // [N,C], f32 or bf16, contiguous
  Tensor ends;   // i32 [E]
  Tensor pairs;  // i32 [R], or undefined
  std::int64_t choices = 1;

  [[nodiscard]] std::int64_t rows() const { return pairs.defined() ? pairs.size(0) : x.size(0); }
};

// [R,C] transposed, by column of each group.
struct GroupColumns {
  Tensor codes;   // f8_e4m3 [C,R]; codes of rows behind the last group are 0
  Tensor scales;  // f32 [E,C]

  [[nodiscard]] bool defined() const noexcept { return codes.defined(); }
};

// Codes by row, with the largest magnitude of each column of each group on the way.
struct GroupRowsCastArgs {
  GroupRows rows;
  QuantTensor out;     // [R,C], e4m3 by row
  Tensor column_amax;  // f32 [E,C], starts at 0 or at maxima so far; or undefined
  bool power_of_two = false;
};
// Codes by column of each group; its scales are read.
struct GroupColumnsCastArgs {
  GroupRows rows;
  GroupColumns out;
};

// C[r] = A[r] * B[e]^T for every row r of group e; rows behind the last group become 0.
struct GroupedFloat8GemmArgs {
  QuantTensor a;  // [R,K], e4m3 by row
  QuantTensor b;  // [E,N,K], e4m3 by row
  Tensor ends;    // i32 [E]
  Tensor c;       // [R,N], bf16 or f32, contiguous
  // As in core/ops/scaled_gemm.h; otherwise sums are carried over to f32 every 256 products.
  bool fast_accumulation = false;
};

// C[e] = A_e^T * B_e + beta * C[e] over the rows of group e. An empty group's is beta * C[e].
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

// Throw invalid_argument naming the tensor that does not fit. A NaN makes its row, or its column of the group, NaN.
[[nodiscard]] QuantTensor quantize_group_rows(const GroupRows& rows, bool power_of_two, const Tensor& column_amax = {});
[[nodiscard]] GroupColumns quantize_group_columns(const GroupRows& rows, const Tensor& scales);

// Sums of products of codes, times the reciprocals of both scales in f32, one rounding to c's dtype. CPUs sum in f32.
// GPUs want compute capability 9.0, K and N (M) to be multiples of 16, and throw unsupported otherwise.
void grouped_gemm(const GroupedFloat8GemmArgs& args);
void grouped_wgrad(const GroupedFloat8WgradArgs& args);

}  // namespace quench
