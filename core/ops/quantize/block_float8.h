#pragma once
// Float8 block scaling of DeepSeek-V3 (arXiv:2412.19437, section 3.3), as TorchAO: e4m3, f32 scales of 1x128 groups or
// 128x128 blocks.
//
// K-major, zero-padded to 128 along K.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

inline constexpr std::int64_t kFloat8Block = 128;

[[nodiscard]] constexpr std::int64_t float8_blocks(std::int64_t n) noexcept {
  return (n + kFloat8Block - 1) / kFloat8Block;
}

// [N,K] (1x128) or [E,N,K] (128x128); Kb = float8_blocks(K). Value = code * scale.
struct BlockFloat8 {
  Tensor codes;   // f8_e4m3 [N,128*Kb] or [E,N,128*Kb]
  Tensor scales;  // f32, [Kb,N] for 1x128, [E,float8_blocks(N),Kb] for 128x128

  [[nodiscard]] bool defined() const noexcept { return codes.defined(); }
};

struct BlockFloat8CastArgs {
  Tensor x;  // [R,C] for 1x128, [E,R,C] for 128x128; f32/bf16, contiguous
  BlockFloat8 out;
  Orientation orientation = Orientation::natural;  // natural: rowwise; transposed: columnwise
  bool squares = false;
};

// Dequantization; K is the last axis of `out` (natural) or the one before (transposed).
struct BlockFloat8ValuesArgs {
  BlockFloat8 x;
  Tensor out;  // f32, original shape, contiguous
  Orientation orientation = Orientation::natural;
};

extern constinit KernelSlot<BlockFloat8CastArgs> block_float8_cast_slot;
extern constinit KernelSlot<BlockFloat8ValuesArgs> block_float8_values_slot;

// The f32 reciprocal of float8_scale(amax) is stored. NaN/Inf makes its block NaN.
[[nodiscard]] BlockFloat8 quantize_block_lines(const Tensor& x, Orientation orientation);
[[nodiscard]] BlockFloat8 quantize_block_squares(const Tensor& x, Orientation orientation);
void block_float8_values(const BlockFloat8ValuesArgs& args);

}  // namespace quench
