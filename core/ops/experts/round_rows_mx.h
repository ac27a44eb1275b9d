#pragma once
// MX emulation (round_mx.h) of expert rows, both ways in one pass.

#include "core/number/e8m0.h"
#include "core/ops/experts/grouped_float8.h"

namespace quench {

struct RoundRowsMxArgs {
  GroupRows rows;    // [R,C], f32/bf16, C % 32 == 0; ends are unused
  Tensor rowwise{};  // out, optional, [R,C]: blocks of 32 along C; may alias x without pairs
  // out, optional, [R,C]: blocks of 32 rows; R % 32 == 0. Groups of multiples of 32 share no block.
  Tensor columnwise;
  MxScaleMode mode = MxScaleMode::rceil;
};

extern constinit KernelSlot<RoundRowsMxArgs> round_rows_mx_slot;

// Bit-identical to permute_tokens and round_mx.
void round_rows_mx(const RoundRowsMxArgs& args);

}  // namespace quench
