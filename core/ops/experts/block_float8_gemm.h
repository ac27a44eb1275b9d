#pragma once
// Grouped products of blockwise float8 operands (core/ops/quantize/block_float8.h, grouped_gemm.h): lines of
// activations times squares of weights, and lines times lines for the weights' gradients.
//
// The sum over each 128 of the contraction is multiplied by both operands' scales and added to a sum in f32. Groups are
// as in grouped_gemm.h; the ends that a weight's gradient reads are multiples of 128, so that no block has rows of two
// groups.

#include "core/ops/quantize/block_float8.h"

namespace quench {

// On which units the products of blocks run.
enum class BlockGemms : std::uint8_t {
  native,    // float8 tensor cores; the CPU emulates by group
  emulated,  // values in f32: the same up to the rounding of sums, on any device, slowly
  // The same, with the values of one group's matrix at a time: where the host sees the groups' ends, that is on the
  // CPU, and on the meta device for it.
  emulated_by_group,
};

// C[r] = A[r] * B[e]^T for every row r of group e; rows behind the last group become 0.
struct BlockFloat8GemmArgs {
  BlockFloat8 a;  // [R,K], lines
  BlockFloat8 b;  // [E,N,K], squares
  Tensor ends;    // i32 [E]; undefined: one group of all rows
  Tensor c;       // [R,N], bf16 or f32, contiguous
  BlockGemms products = BlockGemms::native;
};

// C[e] = A_e^T * B_e + beta * C[e] over the rows of group e. An empty group's is beta * C[e].
struct BlockFloat8WgradArgs {
  BlockFloat8 a;  // lines: the columns of [R,M]
  BlockFloat8 b;  // lines: the columns of [R,N]
  Tensor ends;    // i32 [E]; undefined: one group of all rows
  Tensor c;       // [E,M,N], bf16 or f32, contiguous
  float beta = 0.0f;
  BlockGemms products = BlockGemms::native;
};

// "block float8 gemm 4096x(8x1024)x2048 bf16"
[[nodiscard]] std::string op_label(const BlockFloat8GemmArgs& args);
[[nodiscard]] std::string op_label(const BlockFloat8WgradArgs& args);

extern constinit KernelSlot<BlockFloat8GemmArgs> block_float8_gemm_slot;
extern constinit KernelSlot<BlockFloat8WgradArgs> block_float8_wgrad_slot;

// One rounding to c's dtype. Throw invalid_argument naming the tensor that does not fit. Native products of GPUs want
// compute capability 9.0 and N to be a multiple of 8, and throw unsupported otherwise.
void grouped_gemm(const BlockFloat8GemmArgs& args);
void grouped_wgrad(const BlockFloat8WgradArgs& args);

}  // namespace quench
