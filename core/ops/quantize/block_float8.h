#pragma once
// Float8 with a scale for every 128 elements, or for every square of 128 x 128: the blockwise scheme of DeepSeek-V3
// (arXiv:2412.19437, section 3.3). Semantics are TorchAO's blockwise float8 training: e4m3, f32 scales of any value.
//
// A matrix is a list of lines; the axis within a line is the one that a product contracts, and comes last in the codes,
// continued with zeros to a multiple of 128.

#include "core/device/kernel_slot.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

inline constexpr std::int64_t kFloat8Block = 128;

// Blocks of 128 that hold n elements.
[[nodiscard]] constexpr std::int64_t float8_blocks(std::int64_t n) noexcept {
  return (n + kFloat8Block - 1) / kFloat8Block;
}

// [N,K], or matrices [E,N,K], whose lines have K elements; Kb = float8_blocks(K). An element is worth code * scale.
struct BlockFloat8 {
  Tensor codes;   // f8_e4m3 [N,128*Kb] or [E,N,128*Kb]
  Tensor scales;  // f32. Of lines [Kb,N], of squares [E,float8_blocks(N),Kb]

  [[nodiscard]] bool defined() const noexcept { return codes.defined(); }
};

struct BlockFloat8CastArgs {
  Tensor x;  // [R,C] for lines, [E,R,C] for squares; f32 or bf16, contiguous
  BlockFloat8 out;
  Orientation orientation = Orientation::natural;  // natural: the lines are the rows of x; transposed: its columns
  bool squares = false;
};

// Values of lines or squares, K being the last axis of `out` (natural) or the one before it (transposed).
struct BlockFloat8ValuesArgs {
  BlockFloat8 x;
  Tensor out;  // f32, shape of what was cast, contiguous
  Orientation orientation = Orientation::natural;
};

extern constinit KernelSlot<BlockFloat8CastArgs> block_float8_cast_slot;
extern constinit KernelSlot<BlockFloat8ValuesArgs> block_float8_values_slot;

// The multiplier of a block is float8_scale of its largest magnitude (core/number/float8.h); stored is its reciprocal
// in f32. A NaN makes its block NaN, an infinity too. Throw invalid_argument naming the tensor that does not fit.
[[nodiscard]] BlockFloat8 quantize_block_lines(const Tensor& x, Orientation orientation);
[[nodiscard]] BlockFloat8 quantize_block_squares(const Tensor& x, Orientation orientation);
// code * scale in f32, one rounding.
void block_float8_values(const BlockFloat8ValuesArgs& args);

}  // namespace quench
