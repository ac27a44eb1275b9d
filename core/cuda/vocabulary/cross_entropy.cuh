#pragma once
// Operands and softmax terms of cross-entropy kernels.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {

template <class T, class G>
struct LossRows {
  const T* logits;
  const std::int32_t* labels;
  float* losses;
  G* dlogits;  // null: loss only; may alias logits
  std::int64_t rows, vocab;
  float scale;
};

struct LargestNumber {  // ignores NaN, which the sum propagates
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// e^x for x <= 0. f32 logits: within 2 ulp. bf16 logits: ex2 on a rounded argument, relative error |x| 2^-23.
template <class T>
__device__ inline float exp_term(float x) {
  if constexpr (sizeof(T) == 4) {
    return expf(x);
  } else {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 0x1.715476p+0f));
    return result;
  }
}

// Softmax shift; 0 for -inf, which would give NaN.
__device__ inline float shift_of(float largest) {
  return largest == -INFINITY ? 0.0f : largest;
}

// terms (e^(logit - shift)) * factor = scale * softmax.
template <class G, int N>
__device__ inline void store_gradients(G* row, std::int64_t piece, Vector<float, N> terms, float factor, float scale,
                                       std::int32_t label) {
  const std::int64_t at = label - piece * N;
  if (at >= 0 && at < N) {  // one thread of the row
#pragma unroll
    for (int j = 0; j < N; ++j) terms[j] = fmaf(terms[j], factor, at == j ? -scale : -0.0f);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) terms[j] *= factor;
  }
  store_values(row, piece, terms);
}

// Device code of thread-block clusters, distributed shared memory and st.async (SM90 and later).
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define QUENCH_HAS_CLUSTERS 1
#endif
inline constexpr int kClusterCapability = 90;

// False, with nothing launched, if unsupported.
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, float>& args);
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, bfloat16>& args);

}  // namespace quench::cuda
