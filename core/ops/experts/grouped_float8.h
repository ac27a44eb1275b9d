#pragma once
// Grouped float8 GEMMs and casts, as TorchAO's MoE training.
//
// e4m3, f32 encode scales along K, K-major: rowwise for forward and dgrad, columnwise per group for wgrad. Ends are
// multiples of kFloat8GroupAlignment.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// K of one tensor core instruction. Zero rows change no scale.
inline constexpr std::int64_t kFloat8GroupAlignment = 32;

// Rows dispatched on the fly: row r is x[pairs[r] / choices], 0 if pairs[r] is -1, x[r] without pairs
// (token_permutation.h).
struct GroupRows {
  Tensor x;        // [N,C], f32/bf16, contiguous
  Tensor ends;     // i32 [E]
  Tensor pairs{};  // i32 [R], optional
  std::int64_t choices = 1;

  [[nodiscard]] std::int64_t rows() const { return pairs.defined() ? pairs.size(0) : x.size(0); }
};

// Columnwise per group: [R,C] transposed.
struct GroupColumns {
  Tensor codes;   // f8_e4m3 [C,R]; 0 after the last group
  Tensor scales;  // f32 [E,C]

  [[nodiscard]] bool defined() const noexcept { return codes.defined(); }
};

// Rowwise cast, and columnwise amax per group.
struct GroupRowsCastArgs {
  GroupRows rows;
  QuantTensor out;       // [R,C], e4m3 rowwise
  Tensor column_amax{};  // f32 [E,C], optional, in/out: maximum
  bool power_of_two = false;
};
// Columnwise cast per group, scales given.
struct GroupColumnsCastArgs {
  GroupRows rows;
  GroupColumns out;
};

// GroupedGemmArgs with transpose_b.
struct GroupedFloat8GemmArgs {
  QuantTensor a;  // [R,K], e4m3 rowwise
  QuantTensor b;  // [E,N,K], e4m3 rowwise
  Tensor ends;
  Tensor c;  // [R,N], bf16 or f32, contiguous
  // false: promoted accumulation every 256 of K.
  bool fast_accumulation = false;
};

// As GroupedWgradArgs.
struct GroupedFloat8WgradArgs {
  GroupColumns a;  // [R,M]
  GroupColumns b;  // [R,N]
  Tensor ends;
  Tensor c;  // [E,M,N], bf16 or f32, contiguous
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

// f32 epilogue: accumulators times reciprocals of both scales, one rounding. GPUs without float8 tensor cores multiply
// the codes in bf16. GPUs: K and N (M) % 16 == 0, else throw unsupported.
void grouped_gemm(const GroupedFloat8GemmArgs& args);
void grouped_wgrad(const GroupedFloat8WgradArgs& args);

}  // namespace quench
