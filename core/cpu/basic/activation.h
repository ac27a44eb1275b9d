#pragma once
// Activations and their derivatives, of f32 vectors.

#include "core/cpu/vector_math.h"
#include "core/ops/gated_activation.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// activation(x) and its derivative.
struct Activated {
  F32 value, slope;
};

template <GatedActivation kActivation>
QUENCH_INLINE Activated activate(F32 x) {
  if constexpr (kActivation == GatedActivation::silu) {
    // With s = sigmoid(x): s (1 + x (1 - s)).
    const F32 s = sigmoid(x), silu = x * s;
    return {silu, fma(silu, 1.0f - s, s)};
  } else {
    // (1 + tanh(u)) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
    constexpr float kTwice = 2.0f * 0.7978845608028654f, kCubic = 0.044715f;
    const F32 square = x * x, s = sigmoid(kTwice * x * fma(square, broadcast(kCubic), broadcast(1.0f)));
    const F32 inner = kTwice * fma(square, broadcast(3.0f * kCubic), broadcast(1.0f)), value = x * s;
    return {value, fma(value * (1.0f - s), inner, s)};
  }
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
