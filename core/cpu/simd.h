#pragma once
// f32 vectors, compiled per instruction set: 16 lanes with AVX-512, 8 with AVX2, 4 with NEON and elsewhere. Namespaced
// by level against merging by the linker.
//
// Count of loads and stores: FullVector, or fewer than kLanes (zero-filled, masked). Element alignment suffices.

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/device/kernel_slot.h"
#include "core/number/float_types.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define QUENCH_CPU_JOIN_INNER(a, b) a##b
#define QUENCH_CPU_JOIN(a, b) QUENCH_CPU_JOIN_INNER(a, b)
#define QUENCH_CPU_NAMESPACE QUENCH_CPU_JOIN(level_, QUENCH_CPU_LEVEL)
#define QUENCH_INLINE inline __attribute__((always_inline))

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

using F32 = float __attribute__((vector_size(kLanes * 4)));
using I32 = std::int32_t __attribute__((vector_size(kLanes * 4)));
using U32 = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using U16 = std::uint16_t __attribute__((vector_size(kLanes * 2)));

struct FullVector {
  constexpr operator std::int64_t() const noexcept { return kLanes; }  // NOLINT(google-explicit-constructor)
};

QUENCH_INLINE F32 broadcast(float x) {
  return F32{} + x;
}
QUENCH_INLINE U32 broadcast_u32(std::uint32_t x) {
  return U32{} + x;
}
QUENCH_INLINE F32 as_f32(U32 x) {
  return std::bit_cast<F32>(x);
}
QUENCH_INLINE U32 as_u32(F32 x) {
  return std::bit_cast<U32>(x);
}
// Mask lanes: all ones or all zeros.
QUENCH_INLINE F32 select(I32 mask, F32 a, F32 b) {
  return mask ? a : b;
}
QUENCH_INLINE U32 select(I32 mask, U32 a, U32 b) {
  return mask ? a : b;
}

// 0, 1, 2, ...
QUENCH_INLINE I32 lane_numbers() {
  I32 result{};
  for (int i = 0; i < kLanes; ++i) result[i] = i;
  return result;
}

// Rounded once.
QUENCH_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// b if either is NaN.
QUENCH_INLINE F32 max(F32 a, F32 b) {
  return a > b ? a : b;
}
QUENCH_INLINE F32 min(F32 a, F32 b) {
  return a < b ? a : b;
}

QUENCH_INLINE F32 sqrt(F32 x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__aarch64__)
  return vsqrtq_f32(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Ties to even.
QUENCH_INLINE F32 round_even(F32 x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndnq_f32(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_nearbyintf(x[i]);
  return x;
#endif
}

// Balanced tree: lane i with lane i + half.
QUENCH_INLINE float reduce_add(F32 x) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] += x[i + half];
  return x[0];
}
QUENCH_INLINE float reduce_max(F32 x) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  return x[0];
}

#if defined(__AVX512F__)
QUENCH_INLINE __mmask16 tail_mask(std::int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}
#endif

QUENCH_INLINE F32 load(const float* p, FullVector) {
  F32 result;
  std::memcpy(&result, p, sizeof result);
  return result;
}
QUENCH_INLINE F32 load(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(tail_mask(count), p);
#else
  F32 result{};
  std::memcpy(&result, p, static_cast<std::size_t>(count) * sizeof *p);
  return result;
#endif
}
QUENCH_INLINE void store(float* p, F32 x, FullVector) {
  std::memcpy(p, &x, sizeof x);
}
QUENCH_INLINE void store(float* p, F32 x, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, tail_mask(count), x);
#else
  std::memcpy(p, &x, static_cast<std::size_t>(count) * sizeof *p);
#endif
}

QUENCH_INLINE U32 widen_u16(U16 x) {
#if defined(__AVX512F__)
  return std::bit_cast<U32>(_mm512_cvtepu16_epi32(std::bit_cast<__m256i>(x)));
#elif defined(__AVX2__)
  return std::bit_cast<U32>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(x)));
#else
  return __builtin_convertvector(x, U32);
#endif
}

QUENCH_INLINE F32 widen_bfloat16(U16 bits) {
  return as_f32(widen_u16(bits) << 16);
}

// Round to nearest even, NaN kept; bits in the low half of each lane.
QUENCH_INLINE U32 round_to_bfloat16(F32 x) {
  const U32 word = as_u32(x);
  const U32 rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  return select(x == x, rounded, (word >> 16) | 0x0040u);
}

QUENCH_INLINE U16 narrow_to_u16(U32 x) {  // lanes below 65536
#if defined(__AVX512F__)
  return std::bit_cast<U16>(_mm512_cvtepi32_epi16(std::bit_cast<__m512i>(x)));
#elif defined(__AVX2__)
  const __m256i both = std::bit_cast<__m256i>(x);
  return std::bit_cast<U16>(_mm_packus_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)));
#else
  return __builtin_convertvector(x, U16);
#endif
}

QUENCH_INLINE U16 load_u16(const void* p, FullVector) {
  U16 result;
  std::memcpy(&result, p, sizeof result);
  return result;
}
QUENCH_INLINE U16 load_u16(const void* p, std::int64_t count) {
#if defined(__AVX512F__)
  return std::bit_cast<U16>(_mm256_maskz_loadu_epi16(tail_mask(count), p));
#else
  U16 result{};
  std::memcpy(&result, p, static_cast<std::size_t>(count) * 2);
  return result;
#endif
}
QUENCH_INLINE void store_u16(void* p, U16 x, FullVector) {
  std::memcpy(p, &x, sizeof x);
}
QUENCH_INLINE void store_u16(void* p, U16 x, std::int64_t count) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, tail_mask(count), std::bit_cast<__m256i>(x));
#else
  std::memcpy(p, &x, static_cast<std::size_t>(count) * 2);
#endif
}

template <class Count>
QUENCH_INLINE F32 load(const bfloat16* p, Count count) {
  return widen_bfloat16(load_u16(p, count));
}
// The bf16 instruction of x86 flushes subnormals: no effect above 1.2e-38. That of ARM has the bits of
// round_to_bfloat16().
template <class Count>
QUENCH_INLINE void store(bfloat16* p, F32 x, Count count) {
#if defined(__AVX512BF16__)
  store_u16(p, std::bit_cast<U16>(_mm512_cvtneps_pbh(x)), count);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  store_u16(p, std::bit_cast<U16>(vcvt_bf16_f32(x)), count);
#else
  store_u16(p, narrow_to_u16(round_to_bfloat16(x)), count);
#endif
}

template <class Count>
QUENCH_INLINE F32 load(const float16* p, Count count) {
  const U16 bits = load_u16(p, count);
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(std::bit_cast<__m256i>(bits));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(std::bit_cast<__m128i>(bits));
#elif defined(__aarch64__)
  return vcvt_f32_f16(std::bit_cast<float16x4_t>(bits));
#else
  F32 result;
  for (int i = 0; i < kLanes; ++i) result[i] = float16::from_bits(bits[i]);
  return result;
#endif
}
template <class Count>
QUENCH_INLINE void store(float16* p, F32 x, Count count) {
#if defined(__AVX512F__)
  const auto bits = std::bit_cast<U16>(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__AVX2__)
  const auto bits = std::bit_cast<U16>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__aarch64__)
  const auto bits = std::bit_cast<U16>(vcvt_f16_f32(x));
#else
  U16 bits;
  for (int i = 0; i < kLanes; ++i) bits[i] = float16(x[i]).bits;
#endif
  store_u16(p, bits, count);
}

template <class T>
QUENCH_INLINE F32 round_to(F32 x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
#if defined(__AVX512BF16__)
    return widen_bfloat16(std::bit_cast<U16>(_mm512_cvtneps_pbh(x)));
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return widen_bfloat16(std::bit_cast<U16>(vcvt_bf16_f32(x)));
#else
    return as_f32(round_to_bfloat16(x) << 16);
#endif
  }
  return x;
}

// body(i, count) for i = 0, kLanes, ... with FullVector, then the remaining lanes.
template <class Body>
QUENCH_INLINE void for_vectors(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, FullVector{});
  if (i < n) body(i, n - i);
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
