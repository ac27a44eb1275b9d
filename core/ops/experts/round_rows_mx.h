#pragma once
// MX emulation of expert rows (core/ops/quantize/round_mx.h), rowwise and columnwise in one pass.

#include "core/number/e8m0.h"
#include "core/ops/experts/grouped_float8.h"

namespace quench {

struct RoundRowsMxArgs {
  GroupRows rows;  // [R,C], f32 or bf16, C % 32 == 0; ends are not read
  Tensor rowwise;  // out, [R,C], or undefined: rowwise, blocks of 32 along C; may alias x without pairs
  // out, [R,C], or undefined: columnwise, blocks of 32 rows; R % 32 == 0. Blocks stay within groups of multiples of 32.
  Tensor columnwise;
  MxScaleMode mode = MxScaleMode::rceil;
};

extern constinit KernelSlot<RoundRowsMxArgs> round_rows_mx_slot;

// Bit-identical to permute_tokens and round_mx. Throws invalid_argument naming the mismatch.
void round_rows_mx(const RoundRowsMxArgs& args);

}  // namespace quench
