#pragma once
// Grouped float8 GEMMs with block scaling (DeepSeek-V3): 1x128 activations by 128x128 weights; wgrad is 1x128 by 1x128.
// Partial sums over 128 of K are scaled and added to f32 accumulators.
//
// Groups as in grouped_gemm.h; wgrad needs multiples of 128.

#include "core/ops/quantize/block_float8.h"

namespace quench {

enum class BlockGemms : std::uint8_t {
  native,    // float8 tensor cores; the CPU uses emulated_by_group
  emulated,  // f32 on any device: equal up to accumulation order
  // Dequantizes one group at a time: CPU and meta device, where the host reads the ends.
  emulated_by_group,
};

// GroupedGemmArgs with transpose_b.
struct BlockFloat8GemmArgs {
  BlockFloat8 a;  // [R,K], 1x128
  BlockFloat8 b;  // [E,N,K], 128x128
  Tensor ends{};  // i32 [E]; undefined: one group
  Tensor c;       // [R,N], bf16 or f32, contiguous
  BlockGemms gemms = BlockGemms::native;
};

// As GroupedWgradArgs.
struct BlockFloat8WgradArgs {
  BlockFloat8 a;  // columns of [R,M], 1x128
  BlockFloat8 b;  // columns of [R,N], 1x128
  Tensor ends;
  Tensor c;  // [E,M,N], bf16 or f32, contiguous
  float beta = 0.0f;
  BlockGemms gemms = BlockGemms::native;
};

// "block float8 gemm 4096x(8x1024)x2048 bf16"
[[nodiscard]] std::string op_label(const BlockFloat8GemmArgs& args);
[[nodiscard]] std::string op_label(const BlockFloat8WgradArgs& args);

extern constinit KernelSlot<BlockFloat8GemmArgs> block_float8_gemm_slot;
extern constinit KernelSlot<BlockFloat8WgradArgs> block_float8_wgrad_slot;

// One rounding. GPUs without float8 tensor cores multiply the codes in bf16. Native on GPUs: N % 8 == 0, else throws
// unsupported.
void grouped_gemm(const BlockFloat8GemmArgs& args);
void grouped_wgrad(const BlockFloat8WgradArgs& args);

}  // namespace quench
