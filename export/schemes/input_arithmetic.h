#pragma once
// Arithmetic of dynamic input rounding in which readers of formats differ.

#include "core/number/e8m0.h"
#include "core/ops/quantize/quantize_int.h"

namespace quench {

struct InputArithmetic {
  IntDivision division = IntDivision::quotient;
  MxScaleMode mx4_scale = MxScaleMode::rceil;  // MXFP4; under 8-bit values the rules agree
};

}  // namespace quench
