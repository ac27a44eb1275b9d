#pragma once
// SwiGLU arithmetic of all kernels: bit-identical with and without fused quantization outputs.

#include "core/cuda/common/pack.cuh"

namespace quench::cuda {

// 1 / (1 + e^-x) to a few ulp; exact at infinities, NaN propagates. rcp.approx (1 ulp, flushes subnormals) saves a
// dozen instructions.
__device__ inline float sigmoid(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + expf(-x)));
  return result;
}

template <int N>
__device__ inline Vector<float, N> swiglu_of(const Vector<float, N>& gate, const Vector<float, N>& up) {
  Vector<float, N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) result[j] = gate[j] * sigmoid(gate[j]) * up[j];
  return result;
}

template <int N>
struct SwigluGradient {
  Vector<float, N> dgate, dup, out;
};

// With s = sigmoid(g): d silu(g) / dg = s (1 + g (1 - s)). `out`: forward result.
template <int N>
__device__ inline SwigluGradient<N> swiglu_gradient(const Vector<float, N>& d, const Vector<float, N>& gate,
                                                    const Vector<float, N>& up) {
  SwigluGradient<N> result;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float s = sigmoid(gate[j]), silu = gate[j] * s;
    result.dgate[j] = d[j] * up[j] * fmaf(silu, 1.0f - s, s);
    result.dup[j] = d[j] * silu;
    result.out[j] = silu * up[j];
  }
  return result;
}

}  // namespace quench::cuda
