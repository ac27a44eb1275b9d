#pragma once
// Gated-unit arithmetic of all kernels: bit-identical with and without fused quantization outputs.

#include "core/cuda/common/pack.cuh"
#include "core/ops/gated_activation.h"

namespace quench::cuda {

// 1 / (1 + e^-x) to a few ulp; exact at infinities, NaN propagates. rcp.approx (1 ulp, flushes subnormals) saves a
// dozen instructions.
__device__ inline float sigmoid(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + expf(-x)));
  return result;
}

// activation(gate) and its derivative. silu with s = sigmoid(g): s (1 + g (1 - s)). gelu_tanh:
// (1 + tanh(u)) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (g + 0.044715 g^3).
struct GatedValue {
  float value, slope;
};
template <GatedActivation kActivation>
__device__ inline GatedValue activate(float g) {
  if constexpr (kActivation == GatedActivation::silu) {
    const float s = sigmoid(g), silu = g * s;
    return {silu, fmaf(silu, 1.0f - s, s)};
  } else {
    constexpr float kTwice = 2.0f * 0.7978845608028654f, kCubic = 0.044715f;
    const float square = g * g, s = sigmoid(kTwice * g * fmaf(square, kCubic, 1.0f)), value = g * s;
    return {value, fmaf(value * (1.0f - s), kTwice * fmaf(square, 3.0f * kCubic, 1.0f), s)};
  }
}

template <GatedActivation kActivation = GatedActivation::silu, int N>
__device__ inline Vector<float, N> swiglu_of(const Vector<float, N>& gate, const Vector<float, N>& up) {
  Vector<float, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) result[j] = activate<kActivation>(gate[j]).value * up[j];
  return result;
}

// activation(gate) * up, with an activation known at run time.
template <int N>
__device__ inline Vector<float, N> swiglu_of(GatedActivation activation, const Vector<float, N>& gate,
                                             const Vector<float, N>& up) {
  return activation == GatedActivation::silu ? swiglu_of<GatedActivation::silu>(gate, up)
                                             : swiglu_of<GatedActivation::gelu_tanh>(gate, up);
}

template <int N>
struct SwigluGradient {
  Vector<float, N> dgate, dup, out;
};

// `out`: forward result.
template <GatedActivation kActivation = GatedActivation::silu, int N>
__device__ inline SwigluGradient<N> swiglu_gradient(const Vector<float, N>& d, const Vector<float, N>& gate,
                                                    const Vector<float, N>& up) {
  SwigluGradient<N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const GatedValue active = activate<kActivation>(gate[j]);
    result.dgate[j] = d[j] * up[j] * active.slope;
    result.dup[j] = d[j] * active.value;
    result.out[j] = active.value * up[j];
  }
  return result;
}

}  // namespace quench::cuda
