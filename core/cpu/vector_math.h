#pragma once
// Elementary functions on vectors of f32.

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// e^x to about 1 ulp: exp(-inf) = 0, exp(inf) = inf, NaN stays NaN, results below the smallest subnormal are 0.
// x = n ln2 + r with |r| <= ln2 / 2 (ln2 in two parts), e^r by a minimax polynomial of degree 6.
QUENCH_INLINE F32 exp(F32 x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const F32 n = round_even(x * 1.44269504f);
  F32 r = fma(n, broadcast(-0x1.62e4p-1f), x);
  r = fma(n, broadcast(-0x1.7f7d1cp-20f), r);
  F32 p = broadcast(1.37805939e-3f);
  p = fma(p, r, broadcast(8.37312452e-3f));
  p = fma(p, r, broadcast(4.16695364e-2f));
  p = fma(p, r, broadcast(1.66664720e-1f));
  p = fma(p, r, broadcast(4.99999851e-1f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  // Two factors, since 2^n itself may be outside the range of normal numbers.
  const U32 whole = std::bit_cast<U32>(__builtin_convertvector(n, I32));
  const U32 half = std::bit_cast<U32>(std::bit_cast<I32>(whole) >> 1);
  return p * as_f32((half + 127u) << 23) * as_f32((whole - half + 127u) << 23);
#endif
}

// 1 / (1 + e^-x).
QUENCH_INLINE F32 sigmoid(F32 x) {
  return 1.0f / (1.0f + exp(-x));
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
