#pragma once
// Shared by the kernels of cross-entropy: rows, and the terms of the softmax.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {

template <class T, class G>
struct LossRows {
  const T* logits;
  const std::int32_t* labels;
  float* losses;
  G* dlogits;  // null when not wanted; may be logits
  std::int64_t rows, vocab;
  float scale;
};

struct LargestNumber {  // skips NaN, which shows in the sum
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// e^x for x <= 0. For logits of f32 to 2 ulp. For logits of bf16 the bare instruction on a rounded product, within
// |x| 2^-23 relative: what is lost where x is far below 0 is far below the rounding of the sum.
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

// What is subtracted before the exponential: without the infinities' difference where there is no number yet.
__device__ inline float shift_of(float largest) {
  return largest == -INFINITY ? 0.0f : largest;
}

// The gradients of one piece of a row from its terms e^(logit - shift), which times `factor` are scale * softmax.
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

// Long rows of bf16 in whole 16-byte pieces, aligned. False, and nothing is done, where it cannot.
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, float>& args);
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, bfloat16>& args);

}  // namespace quench::cuda
