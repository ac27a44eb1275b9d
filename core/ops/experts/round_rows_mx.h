#pragma once
// Rounding of the rows of experts to MX and back (core/ops/quantize/round_mx.h) in all the forms that products read,
// for which the rows are read once.

#include "core/number/e8m0.h"
#include "core/ops/experts/grouped_float8.h"

namespace quench {

struct RoundRowsMxArgs {
  GroupRows rows;  // [R,C] of f32 or bf16, C a multiple of 32; its ends are not read
  Tensor rowwise;  // out, or undefined: [R,C], blocks of 32 along C; may be x itself where there are no pairs
  // out, or undefined: [R,C], blocks of 32 rows; R is a multiple of 32 then. No block crosses the end of a group whose
  // rows are a multiple of 32.
  Tensor columnwise;
  MxScaleMode mode = MxScaleMode::rceil;
};

extern constinit KernelSlot<RoundRowsMxArgs> round_rows_mx_slot;

// The bits of permute_tokens and of one round_mx for each form. Throws invalid_argument naming what does not fit.
void round_rows_mx(const RoundRowsMxArgs& args);

}  // namespace quench
