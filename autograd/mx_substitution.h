#pragma once
// Substitution by values rounded to MX.

#include "autograd/fused_value.h"
#include "core/number/e8m0.h"

namespace quench::autograd {

// Values rounded to MX with e4m3 elements, rowwise (core/ops/quantize/round_mx.h).
struct MxSubstitution final : ValueSubstitution {
  explicit MxSubstitution(MxScaleMode scale_mode) : mode(scale_mode) {}
  MxScaleMode mode;
};

}  // namespace quench::autograd
