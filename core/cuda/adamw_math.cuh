#pragma once
// The arithmetic of AdamW with IEEE results and few instructions.
//
// nvcc's square root and division test every operand and branch around a slow path: three branches an element, which
// zero gradients (rows of an embedding that no token names) take each time. Here one test covers a group of elements,
// and in the range it admits the same sequences of fused operations as nvcc's are exact.

#include <cstdint>

#include "core/minifloat.h"
#include "core/random.h"

namespace quench::cuda {

struct AdamWCoefficients {
  float weight1, beta2, weight2, bias2, inverse_bias2, eps, step_size;
  bool ordinary;  // bias2 and eps are in the range that the fast path is exact for
};

// bias2 in [2^-12, 1] and eps 0 or in [2^-80, 2^30].
[[nodiscard]] inline bool ordinary_coefficients(float bias2, float eps) {
  return bias2 >= 0x1p-12f && bias2 <= 1.0f && (eps == 0.0f || (eps >= 0x1p-80f && eps <= 0x1p30f));
}

// The moments after this step; `g` is scaled.
__device__ inline void update_moments(const AdamWCoefficients& c, float g, float& m, float& v) {
  m = fmaf(c.weight1, g - m, m);
  v = fmaf(c.weight2, g * g, v * c.beta2);
}

// p + step_size * m / (sqrt(v) / bias2 + eps), each operation rounded once; p is decayed.
__device__ inline float step_weight(const AdamWCoefficients& c, float p, float m, float v) {
  return fmaf(c.step_size, m / (sqrtf(v) / c.bias2 + c.eps), p);
}

// True unless fast_step_weight may be inexact for these moments without giving NaN. v: 0, or from 2^-101 (below, the
// remainder of the square root is not representable) to 2^40. m: +0, or from 2^-90, so that the quotient by a
// denominator of at most 2^33 is normal and its remainder representable. Inf, NaN and what overflows give NaN.
__device__ inline bool ordinary_moments(float m, float v) {
  const std::uint32_t rotated = __funnelshift_l(__float_as_uint(m), __float_as_uint(m), 1);  // the sign comes last
  constexpr std::uint32_t kLeastM = bit_cast<std::uint32_t>(0x1p-90f) << 1,
                          kLeastV = bit_cast<std::uint32_t>(0x1p-101f);
  // No short cuts: a branch costs more than a comparison.
  return (rotated - 1u >= kLeastM - 1u) & (__float_as_uint(v) - 1u >= kLeastV - 1u) & !(v > 0x1p40f);
}

// As step_weight where the moments and the coefficients are ordinary, or NaN.
__device__ inline float fast_step_weight(const AdamWCoefficients& c, float p, float m, float v) {
  // Square root: an estimate of 1 / sqrt(v) and one correction with the exact remainder, operation by operation what
  // sqrtf is in its own fast range: how close the estimate is decides whether that is exact. Zero stays zero.
  float inverse_root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse_root) : "f"(fmaxf(v, 0x1p-101f)));
  float root = v * inverse_root;
  root = fmaf(fmaf(-root, root, v), 0.5f * inverse_root, root);
  // Division by bias2, whose reciprocal is correctly rounded: one correction with the exact remainder gives the
  // quotient rounded to nearest (Markstein, "Computation of elementary functions on the IBM RISC System/6000
  // processor", 1990).
  float denominator = root * c.inverse_bias2;
  denominator = fmaf(fmaf(-c.bias2, denominator, root), c.inverse_bias2, denominator);
  denominator += c.eps;
  // Division by the denominator, operation by operation what nvcc emits: the same with a reciprocal from an estimate
  // and one Newton step.
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(denominator));
  inverse = fmaf(fmaf(-denominator, inverse, 1.0f), inverse, inverse);
  float quotient = m * inverse;
  quotient = fmaf(fmaf(-denominator, quotient, m), inverse, quotient);
  return fmaf(c.step_size, quotient, p);
}

// The words of random_block (core/random.h) for its key: the rounds of philox4x32, with each product as the one
// instruction that it is. nvcc makes two of a 64-bit product of widened factors.
__device__ inline PhiloxBlock philox_words(std::uint64_t block, std::uint64_t step, std::uint64_t key) {
  const auto product = [](std::uint32_t a, std::uint32_t b) {
    std::uint64_t wide;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(wide) : "r"(a), "r"(b));
    return wide;
  };
  std::uint32_t c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32),
                c2 = static_cast<std::uint32_t>(step), c3 = static_cast<std::uint32_t>(step >> 32);
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = product(0xD2511F53u, c0), b = product(0xCD9E8D57u, c2);
    c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ key0;
    c1 = static_cast<std::uint32_t>(b);
    c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ key1;
    c3 = static_cast<std::uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// NaN as the one whose lower half is zero, which adding a 16-bit number to does not turn into something else.
__device__ inline float canonical_nan(float x) {
  return x != x ? __uint_as_float(kF32QuietNan) : x;
}

// stochastic_round_bf16 (core/stochastic_rounding.h) of two numbers that are not NaN, or canonical_nan; `first` in the
// lower half. The carry of f + (0xFFFF - r) out of 16 bits is r < f.
__device__ inline std::uint32_t stochastic_round_pair(float first, float second, std::uint32_t first_random,
                                                      std::uint32_t second_random) {
  const std::uint32_t a = __float_as_uint(first) + 0xFFFFu - (first_random >> 16),
                      b = __float_as_uint(second) + 0xFFFFu - (second_random >> 16);
  return __byte_perm(a, b, 0x7632);
}

}  // namespace quench::cuda
