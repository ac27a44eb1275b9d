#pragma once
// Minimax polynomials, relative error below 4e-9.

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// p * 2^n, integer n within +-300.
QUENCH_INLINE F32 scale_by_power(F32 p, F32 n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  // 2^n may be outside the normal range.
  const I32 whole = __builtin_convertvector(n, I32), half = whole >> 1;
  return p * as_f32(std::bit_cast<U32>(half + 127) << 23) * as_f32(std::bit_cast<U32>(whole - half + 127) << 23);
#endif
}

// To about 1 ulp: exp(-inf) = 0, exp(inf) = inf, NaN propagates, 0 below the smallest subnormal. x = n ln2 + r, |r| <=
// ln2 / 2, ln2 in two parts.
QUENCH_INLINE F32 exp(F32 x) {
  x = min(broadcast(89.0f), max(broadcast(-104.0f), x));
  const F32 n = round_even(x * 0x1.715476p+0f);
  F32 r = fma(n, broadcast(-0x1.62e4p-1f), x);
  r = fma(n, broadcast(-0x1.7f7d1cp-20f), r);
  F32 p = broadcast(0x1.6a244cp-10f);
  p = fma(p, r, broadcast(0x1.1239d4p-7f));
  p = fma(p, r, broadcast(0x1.5558f2p-5f));
  p = fma(p, r, broadcast(0x1.555492p-3f));
  p = fma(p, r, broadcast(0x1.fffffcp-2f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return scale_by_power(p, n);
}

// x <= 127, to about 1 ulp: exp2(-inf) = 0, NaN propagates.
QUENCH_INLINE F32 exp2(F32 x) {
  x = max(broadcast(-150.0f), x);
  const F32 n = round_even(x), r = x - n;
  F32 p = broadcast(0x1.41fbbcp-13f);
  p = fma(p, r, broadcast(0x1.5f3e54p-10f));
  p = fma(p, r, broadcast(0x1.3b2d4cp-7f));
  p = fma(p, r, broadcast(0x1.c6aee8p-5f));
  p = fma(p, r, broadcast(0x1.ebfbdcp-3f));
  p = fma(p, r, broadcast(0x1.62e430p-1f));
  p = fma(p, r, broadcast(1.0f));
  return scale_by_power(p, n);
}

// To about 2 ulp: odd series below 0.3, elsewhere from exp(2x).
QUENCH_INLINE F32 tanh(F32 x) {
  const F32 square = x * x;
  F32 series = broadcast(-1382.0f / 155925.0f);
  series = fma(series, square, broadcast(62.0f / 2835.0f));
  series = fma(series, square, broadcast(-17.0f / 315.0f));
  series = fma(series, square, broadcast(2.0f / 15.0f));
  series = fma(series, square, broadcast(-1.0f / 3.0f));
  series = fma(series * square, x, x);
  const F32 rest = 1.0f - 2.0f / (1.0f + exp(2.0f * x));
  return select(square < 0.09f, series, rest);
}

QUENCH_INLINE F32 sigmoid(F32 x) {
  return 1.0f / (1.0f + exp(-x));
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
