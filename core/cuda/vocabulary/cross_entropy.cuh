#pragma once
// Operands and softmax terms of cross-entropy kernels.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {

// Gradient as an e5m2 code of its bf16 value times an encode scale.
struct GradientCode {
  std::uint8_t bits;
};

template <class T, class G>
struct LossRows {
  const T* logits;
  const std::int32_t* labels;
  float* losses;
  G* dlogits;  // null: loss only; may alias logits
  std::int64_t rows, vocab;
  float scale;
  const float* encode = nullptr;  // encode scale, of GradientCode

  [[nodiscard]] __device__ float encode_factor() const { return std::is_same_v<G, GradientCode> ? *encode : 1.0f; }
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

template <class G, int N>
__device__ inline void store_gradient(G* row, std::int64_t piece, const Vector<float, N>& values, float encode) {
  if constexpr (!std::is_same_v<G, GradientCode>) {
    store_values(row, piece, values);
  } else {
    const Vector<float, N> rounded = unpack(pack<bfloat16>(values));
    if constexpr (N == 1) {
      row[piece].bits = static_cast<std::uint8_t>(encode_pair<E5m2>(rounded[0] * encode, 0.0f));
    } else {
      std::uint32_t words[N / 4];
#pragma unroll
      for (int i = 0; i < N / 4; ++i)
        words[i] = encode_pair<E5m2>(rounded[4 * i] * encode, rounded[4 * i + 1] * encode) |
                   encode_pair<E5m2>(rounded[4 * i + 2] * encode, rounded[4 * i + 3] * encode) << 16;
      if constexpr (N == 8)
        reinterpret_cast<uint2*>(row)[piece] = make_uint2(words[0], words[1]);
      else
        reinterpret_cast<std::uint32_t*>(row)[piece] = words[0];
    }
  }
}

// terms (e^(logit - shift)) * factor = scale * softmax.
template <class G, int N>
__device__ inline void store_gradients(G* row, std::int64_t piece, Vector<float, N> terms, float factor, float scale,
                                       std::int32_t label, float encode) {
  const std::int64_t at = label - piece * N;
  if (at >= 0 && at < N) {  // one thread of the row
#pragma unroll
    for (int j = 0; j < N; ++j) terms[j] = fmaf(terms[j], factor, at == j ? -scale : -0.0f);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) terms[j] *= factor;
  }
  store_gradient(row, piece, terms, encode);
}

// Device code of thread-block clusters, distributed shared memory and st.async (SM90 and later).
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define QUENCH_HAS_CLUSTERS 1
#endif
inline constexpr int kClusterCapability = 90;

// False, with nothing launched, if unsupported.
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, float>& args);
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, bfloat16>& args);
[[nodiscard]] bool stream_loss(const OpLaunch& launch, const LossRows<bfloat16, GradientCode>& args);

}  // namespace quench::cuda
