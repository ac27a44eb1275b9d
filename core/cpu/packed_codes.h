#pragma once
// Packed values to f32 vectors: a block is one load of kLanes bytes; 4-bit values give two vectors, even and odd.

#include "core/cpu/simd.h"
#include "core/number/dtype.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// One per lane.
QUENCH_INLINE U32 load_bytes(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return std::bit_cast<U32>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return std::bit_cast<U32>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(__aarch64__)
  std::uint32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return std::bit_cast<U32>(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
#else
  U32 result;
  for (int i = 0; i < kLanes; ++i) result[i] = p[i];
  return result;
#endif
}

QUENCH_INLINE F32 to_f32(I32 x) {
  return __builtin_convertvector(x, F32);
}

// Even and odd elements to two halves.
QUENCH_INLINE void interleave(F32 (&pair)[2]) {
  I32 low, high;
  for (int i = 0; i < kLanes; ++i) {
    low[i] = (i % 2) * kLanes + i / 2;
    high[i] = low[i] + kLanes / 2;
  }
  const F32 first = __builtin_shuffle(pair[0], pair[1], low);
  pair[1] = __builtin_shuffle(pair[0], pair[1], high);
  pair[0] = first;
}

// Even element in the low nibble. Value::of reads the low four bits of each lane.
template <class Value>
struct NibbleCodes {
  using ValueOf = Value;
  static constexpr int kPerByte = 2, kVectors = 2, kBlock = 2 * kLanes, kBlockBytes = kLanes;
  static QUENCH_INLINE void decode(const std::uint8_t* p, F32 (&out)[2]) {
    const U32 bytes = load_bytes(p);
    out[0] = Value::of(bytes);
    out[1] = Value::of(bytes >> 4);
  }
  static QUENCH_INLINE void in_order(F32 (&pair)[2]) { interleave(pair); }
};

template <class Value>
struct ByteCodes {
  using ValueOf = Value;
  static constexpr int kPerByte = 1, kVectors = 1, kBlock = kLanes, kBlockBytes = kLanes;
  static QUENCH_INLINE void decode(const std::uint8_t* p, F32 (&out)[2]) { out[0] = Value::of(load_bytes(p)); }
  static QUENCH_INLINE void in_order(F32 (&)[2]) {}
};

struct SignedNibble {
  static QUENCH_INLINE F32 of(U32 code) {
#if defined(__AVX512F__)
    const F32 values = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    return _mm512_permutexvar_ps(std::bit_cast<__m512i>(code), values);  // four bits
#else
    return to_f32(std::bit_cast<I32>(code << 28) >> 28);
#endif
  }
};

struct SignedByte {
  static QUENCH_INLINE F32 of(U32 code) { return to_f32(std::bit_cast<I32>(code << 24) >> 24); }
};

struct Float4Value {
  static QUENCH_INLINE F32 of(U32 code) {
#if defined(__AVX512F__)
    const F32 values = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return _mm512_permutexvar_ps(std::bit_cast<__m512i>(code), values);
#else
    // Magnitudes 0.5 * {0, 1, 2, 3, 4, 6, 8, 12}: above 1, mantissa and exponent map to f32's.
    const U32 magnitude = code & 7u;
    const F32 normal = as_f32((magnitude << 22) + (126u << 23));
    const F32 small = to_f32(std::bit_cast<I32>(magnitude)) * broadcast(0.5f);
    const F32 value = select(std::bit_cast<I32>(magnitude < 2u), small, normal);
    return as_f32(as_u32(value) | (code & 8u) << 28);
#endif
  }
};

// No NaN.
struct Float8Value {
  static QUENCH_INLINE F32 of(U32 code) {
    const U32 magnitude = code & 0x7Fu;
    const F32 normal = as_f32((magnitude << 20) + (120u << 23));
    const F32 small = to_f32(std::bit_cast<I32>(magnitude)) * broadcast(0x1p-9f);
    const F32 value = select(std::bit_cast<I32>(magnitude < 8u), small, normal);
    return as_f32(as_u32(value) | (code & 0x80u) << 24);
  }
};

using Int4Codes = NibbleCodes<SignedNibble>;
using Int8Codes = ByteCodes<SignedByte>;
using Float4Codes = NibbleCodes<Float4Value>;
using Float8Codes = ByteCodes<Float8Value>;

template <class Body>
void dispatch_codes(DType dtype, std::string_view op, const Body& body) {
  switch (dtype) {
    case DType::i4: return body.template operator()<Int4Codes>();
    case DType::i8: return body.template operator()<Int8Codes>();
    case DType::f4_e2m1: return body.template operator()<Float4Codes>();
    case DType::f8_e4m3: return body.template operator()<Float8Codes>();
    default: QUENCH_FAIL(ErrorCode::unsupported, "{}: codes of dtype {} are not supported", op, to_string(dtype));
  }
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
