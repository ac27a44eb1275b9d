#pragma once
// IEEE-exact AdamW arithmetic. nvcc's sqrt and division branch to a slow path per operand, taken for zero gradients;
// here one test covers a group of elements, and within its range the same FMA sequences are exact.

#include <cmath>
#include <cstdint>

#include "core/cuda/common/philox.cuh"
#include "core/number/minifloat.h"
#include "core/ops/optimizer/adamw.h"

namespace quench::cuda {

struct AdamWCoefficients {
  float weight1, beta2, weight2, bias2, inverse_bias2, eps, step_size;
  bool ordinary;  // in the fast path's exact range
};

[[nodiscard]] inline bool ordinary_coefficients(float bias2, float eps) {
  return bias2 >= 0x1p-12f && bias2 <= 1.0f && (eps == 0.0f || (eps >= 0x1p-80f && eps <= 0x1p30f));
}

// In f64, rounded once.
[[nodiscard]] inline AdamWCoefficients adamw_coefficients(const AdamWArgs& args) {
  const auto step = static_cast<double>(args.step);
  const auto bias2 = static_cast<float>(std::sqrt(1 - std::pow(args.beta2, step))), eps = static_cast<float>(args.eps);
  return {.weight1 = static_cast<float>(1 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .weight2 = static_cast<float>(1 - args.beta2),
          .bias2 = bias2,
          .inverse_bias2 = 1.0f / bias2,
          .eps = eps,
          .step_size = static_cast<float>(-args.lr / (1 - std::pow(args.beta1, step))),
          .ordinary = ordinary_coefficients(bias2, eps)};
}

// `g` is scaled.
__device__ inline void update_moments(const AdamWCoefficients& c, float g, float& m, float& v) {
  m = fmaf(c.weight1, g - m, m);
  v = fmaf(c.weight2, g * g, v * c.beta2);
}

// Each operation rounded once; p after weight decay.
__device__ inline float step_weight(const AdamWCoefficients& c, float p, float m, float v) {
  return fmaf(c.step_size, m / (sqrtf(v) / c.bias2 + c.eps), p);
}

// Exact range of fast_step_weight. v: 2^-101 (representable remainder of the square root) to 2^40. m: at least 2^-90,
// for a normal quotient by at most 2^33 with a representable remainder.
inline constexpr float kLeastM = 0x1p-90f, kLeastV = 0x1p-101f, kLargestV = 0x1p40f;

// False if fast_step_weight may be inexact and not NaN. Zeros, except -0, are exact; Inf, NaN and overflow give NaN.
__device__ inline bool ordinary_moments(float m, float v) {
  const std::uint32_t rotated = __funnelshift_l(__float_as_uint(m), __float_as_uint(m), 1);  // sign bit last
  constexpr std::uint32_t kRotatedLeastM = bit_cast<std::uint32_t>(kLeastM) << 1;
  // A branch costs more than a comparison.
  return (rotated - 1u >= kRotatedLeastM - 1u) & ((__float_as_uint(v) == 0u) | (v >= kLeastV)) & !(v > kLargestV);
}

// Half the instructions, half of them on the FMA pipe; rejects zeros.
class UsualMoments {
 public:
  // `p`: result of fast_step_weight.
  __device__ void add(float p, float m, float v) {
    least_m_ = fminf(least_m_, fabsf(m));
    least_v_ = fminf(least_v_, v);
    sum_ = fmaf(p, 0.0f, sum_ + v);  // Inf and NaN propagate
  }
  __device__ bool all() const { return (least_m_ >= kLeastM) & (least_v_ >= kLeastV) & (sum_ <= kLargestV); }

 private:
  float least_m_ = kLeastM, least_v_ = kLeastV, sum_ = 0.0f;
};

// step_weight for ordinary moments and coefficients, else possibly NaN.
__device__ inline float fast_step_weight(const AdamWCoefficients& c, float p, float m, float v) {
  // sqrtf's fast path: rsqrt estimate and one exact-remainder correction, exact for that estimate. The addend only
  // affects v = 0, which stays zero.
  float inverse_root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse_root) : "f"(v + 0x1p-126f));
  float root = v * inverse_root;
  root = fmaf(fmaf(-root, root, v), 0.5f * inverse_root, root);
  // Correctly rounded reciprocal and one exact-remainder correction: correctly rounded division (Markstein, 1990).
  float denominator = root * c.inverse_bias2;
  denominator = fmaf(fmaf(-c.bias2, denominator, root), c.inverse_bias2, denominator);
  denominator += c.eps;
  // nvcc's division: estimated reciprocal, one Newton step.
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(denominator));
  inverse = fmaf(fmaf(-denominator, inverse, 1.0f), inverse, inverse);
  float quotient = m * inverse;
  quotient = fmaf(fmaf(-denominator, quotient, m), inverse, quotient);
  return fmaf(c.step_size, quotient, p);
}

// random_block words by AdamWRounding.
struct RoundingBlocks {
  std::uint32_t words[3][4];
};

// Blocks of the bits in kWanted (bit 0: AdamWRounding{0}): interleaved philox4x32 rounds with shared round keys.
template <unsigned kWanted>
__device__ RoundingBlocks rounding_blocks(std::uint64_t block, std::uint64_t step, std::uint64_t key) {
  RoundingBlocks result;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    std::uint32_t(&c)[4] = result.words[i];
    c[0] = low_word(block);
    c[1] = high_word(block);
    c[2] = low_word(step);
    c[3] = high_word(random_step(step, static_cast<AdamWRounding>(i)));
  }
  std::uint32_t key0 = low_word(key), key1 = high_word(key);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if ((kWanted >> i & 1u) != 0) philox_round(result.words[i], key0, key1);
    advance_keys(key0, key1);
  }
  return result;
}

// Zero lower half: stays NaN when 16 random bits are added.
__device__ inline float canonical_nan(float x) {
  return x != x ? __uint_as_float(kF32QuietNan) : x;
}

// stochastic_round_bf16 of two values, not NaN or canonical_nan, with one word; `first` low. One instruction per
// addition: dp2a with (1, 0), shift-add.
__device__ inline std::uint32_t stochastic_round_pair(float first, float second, std::uint32_t random) {
  return __byte_perm(__dp2a_lo(random, 1u, __float_as_uint(first)), __float_as_uint(second) + (random >> 16), 0x7632);
}

}  // namespace quench::cuda
