#pragma once
// Dot product of a packed block and x. A block is one byte vector of a weight row. A 32-bit lane holds kPerLane
// adjacent elements and accumulates into one lane: one scale per lane if groups are multiples of kPerLane. Values are
// shifted within their lane only; x is arranged accordingly (element()).
//
// Interface:
//   X                      element type of x
//   Part                   accumulator vector
//   kPerLane, kBlock, kBlockBytes   elements per lane and block, bytes per block
//   kVectors, kWidth       vectors of x per block, elements per vector
//   element(vector, position)       block element at this position of x
//   add<kRows>(codes, x, stride, part)   part[row][0] + part[row][1] += block . rows of x
//   sum(part)              of both, in f32
// Fixed point, with a scale per lane and block:
//   kUnit, kLowParts       value of integer 1; low parts per unit of a high part
//   add<kRows, kLow>(), sum<kLow>()   x holds high parts, then low parts, used if kLow

#include <array>
#include <utility>

#include "core/cpu/packed_codes.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

#define QUENCH_INLINE_LAMBDA __attribute__((always_inline))

// Compile-time loop: indexed vector arrays stay in registers.
template <int kCount, class Body>
QUENCH_INLINE void unrolled(const Body& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) QUENCH_INLINE_LAMBDA {
    (body(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

QUENCH_INLINE U32 load_words(const std::uint8_t* p) {
  U32 words;
  std::memcpy(&words, p, sizeof words);
  return words;
}

// f32 values and x: exact products.
template <class Value, int kBits>
struct F32Way {
  using X = float;
  using Part = F32;
  static constexpr int kPerLane = 32 / kBits, kVectors = kPerLane, kWidth = kLanes;
  static constexpr int kBlock = kPerLane * kLanes, kBlockBytes = 4 * kLanes;
  static constexpr int element(int vector, int position) { return position * kPerLane + vector; }

  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const U32 words = load_words(codes);
    unrolled<kVectors>([&](auto j) QUENCH_INLINE_LAMBDA {
      const F32 w = Value::of(words >> (kBits * j));
      unrolled<kRows>([&](auto row) QUENCH_INLINE_LAMBDA {
        part[row][j % 2] = fma(w, load(x + row * stride + j * kLanes, FullVector{}), part[row][j % 2]);
      });
    });
  }
  static QUENCH_INLINE F32 sum(const Part (&part)[2]) { return part[0] + part[1]; }
};

inline constexpr std::array<float, 16> kInt4Values = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
inline constexpr std::array<float, 16> kFloat4Values = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                        -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

#if defined(__AVX512BF16__)
// bf16 values (exact) and x, f32 accumulation: two elements per lane and instruction.
struct Bf16Way {
  using X = bfloat16;
  using Part = F32;
  static constexpr int kWidth = 2 * kLanes, kBlockBytes = 4 * kLanes;
  static QUENCH_INLINE F32 sum(const Part (&part)[2]) { return part[0] + part[1]; }

 protected:
  static constexpr int kTable = 32;  // register table: five index bits
  using Table = std::array<std::uint16_t, kTable>;
  // 16 entries, duplicated: the fifth index bit is the next value's.
  static constexpr Table table(const std::array<float, 16>& values) {
    Table result{};
    for (std::size_t i = 0; i < kTable; ++i)
      result[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i % 16]) >> 16);
    return result;
  }
  static QUENCH_INLINE __m512i lookup(const Table& values, __m512i words) {
    return _mm512_permutexvar_epi16(words, _mm512_loadu_si512(values.data()));
  }
  template <int kRows, int kChain>
  static QUENCH_INLINE void multiply(__m512i w, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    unrolled<kRows>([&](auto row) QUENCH_INLINE_LAMBDA {
      part[row][kChain] = _mm512_dpbf16_ps(part[row][kChain], std::bit_cast<__m512bh>(w),
                                           std::bit_cast<__m512bh>(_mm512_loadu_si512(x + row * stride)));
    });
  }
};

template <const std::array<float, 16>& kValues>
struct Bf16Nibbles : Bf16Way {
  static constexpr Table kTableOfValues = table(kValues);
  static constexpr int kPerLane = 8, kVectors = 4, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 4 * position + vector; }

  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const __m512i words = _mm512_loadu_si512(codes);
    unrolled<kVectors>([&](auto j) QUENCH_INLINE_LAMBDA {
      multiply<kRows, j % 2>(lookup(kTableOfValues, _mm512_srli_epi16(words, 4u * j)), x + j * kWidth, stride, part);
    });
  }
};

struct Bf16Bytes : Bf16Way {
  static constexpr int kPerLane = 4, kVectors = 2, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 2 * position + vector; }
};

// int8: sum of two nibbles' values.
struct Bf16SignedBytes : Bf16Bytes {
  static constexpr Table kLow = table({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  static constexpr Table kHigh = table({0, 16, 32, 48, 64, 80, 96, 112, -128, -112, -96, -80, -64, -48, -32, -16});
  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const __m512i words = _mm512_loadu_si512(codes);
    unrolled<4>([&](auto j) QUENCH_INLINE_LAMBDA {
      multiply<kRows, j % 2>(lookup(j % 2 == 0 ? kLow : kHigh, _mm512_srli_epi16(words, 4u * j)), x + j / 2 * kWidth,
                             stride, part);
    });
  }
};

// Exponent and mantissa are shifted, the bias 7 becomes 127; subnormals (below 2^-6) from a table.
struct Bf16Float8 : Bf16Bytes {
  static constexpr Table kSmall =
      table({0, 0x1p-9f, 0x2p-9f, 0x3p-9f, 0x4p-9f, 0x5p-9f, 0x6p-9f, 0x7p-9f, 0, 0, 0, 0, 0, 0, 0, 0});
  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const __m512i words = _mm512_loadu_si512(codes);
    unrolled<2>([&](auto j) QUENCH_INLINE_LAMBDA {
      const __m512i high = j == 0 ? _mm512_slli_epi16(words, 8) : words;
      const __m512i moved =
          _mm512_and_si512(_mm512_srai_epi16(high, 4), _mm512_set1_epi16(static_cast<std::int16_t>(0x87F0)));
      const __m512i normal = _mm512_add_epi16(moved, _mm512_set1_epi16(120 << 7));
      const __m512i sign = _mm512_and_si512(high, _mm512_set1_epi16(static_cast<std::int16_t>(0x8000)));
      const __m512i small = _mm512_or_si512(lookup(kSmall, j == 0 ? words : _mm512_srli_epi16(words, 8)), sign);
      const __mmask32 is_small = _mm512_testn_epi16_mask(high, _mm512_set1_epi16(0x7800));
      multiply<kRows, j>(_mm512_mask_mov_epi16(normal, is_small, small), x + j * kWidth, stride, part);
    });
  }
};
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
// int16 values and x: a 15-bit high part, and a low part where bf16 elements are small relative to their lane. Exact
// products and block sums, twice the f32 rate.
struct FixedWay {
  using X = std::int16_t;
  using Part = I32;
  static constexpr int kWidth = 2 * kLanes, kBlockBytes = 4 * kLanes;
  static constexpr float kUnit = 1, kLowParts = 32768;
  template <bool kLow>
  static QUENCH_INLINE F32 sum(const Part (&part)[2]) {
    if constexpr (kLow) return fma(to_f32(part[1]), broadcast(1 / kLowParts), to_f32(part[0]));
    return to_f32(part[0]);
  }

 protected:
  template <int kRows, bool kLow, int kVectors>
  static QUENCH_INLINE void multiply(__m256i w, int j, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    unrolled<kRows>([&](auto row) QUENCH_INLINE_LAMBDA {
      const X* high = x + row * stride + j * kWidth;
      part[row][0] += products(w, high);
      if constexpr (kLow) part[row][1] += products(w, high + kVectors * kWidth);
    });
  }
  // Bytes of 16 bits, sign-extended.
  static QUENCH_INLINE __m256i low_bytes(__m256i x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
  static QUENCH_INLINE __m256i high_bytes(__m256i x) { return _mm256_srai_epi16(x, 8); }

 private:
  static QUENCH_INLINE I32 products(__m256i w, const X* x) {
    return std::bit_cast<I32>(_mm256_madd_epi16(w, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
  }
};

struct FixedNibbles : FixedWay {
  static constexpr int kPerLane = 8, kVectors = 4, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 4 * position + vector; }
  template <int kRows, bool kLow>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const auto words = std::bit_cast<__m256i>(load_words(codes));
    unrolled<kVectors>([&](auto j) QUENCH_INLINE_LAMBDA {
      const __m256i w = _mm256_srai_epi16(_mm256_slli_epi16(words, 12 - 4 * j), 12);
      multiply<kRows, kLow, kVectors>(w, j, x, stride, part);
    });
  }
};

struct FixedBytes : FixedWay {
  static constexpr int kPerLane = 4, kVectors = 2, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 2 * position + vector; }
  template <int kRows, bool kLow>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const auto words = std::bit_cast<__m256i>(load_words(codes));
    multiply<kRows, kLow, kVectors>(low_bytes(words), 0, x, stride, part);
    multiply<kRows, kLow, kVectors>(high_bytes(words), 1, x, stride, part);
  }
};

// e2m1 times two.
struct FixedFloat4 : FixedWay {
  static constexpr float kUnit = 0.5f;
  static constexpr int kPerLane = 8, kVectors = 4, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 4 * position + vector; }
  template <int kRows, bool kLow>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const auto words = std::bit_cast<__m256i>(load_words(codes));
    const __m256i doubled =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i even = _mm256_shuffle_epi8(doubled, _mm256_and_si256(words, nibble));
    const __m256i odd = _mm256_shuffle_epi8(doubled, _mm256_and_si256(_mm256_srli_epi16(words, 4), nibble));
    multiply<kRows, kLow, kVectors>(low_bytes(even), 0, x, stride, part);
    multiply<kRows, kLow, kVectors>(low_bytes(odd), 1, x, stride, part);
    multiply<kRows, kLow, kVectors>(high_bytes(even), 2, x, stride, part);
    multiply<kRows, kLow, kVectors>(high_bytes(odd), 3, x, stride, part);
  }
};
#endif

// u8 inputs: exact products and sums.
#if defined(__AVX512VNNI__)
QUENCH_INLINE I32 add_byte_products(I32 sum, U32 x, U32 w) {
  return std::bit_cast<I32>(
      _mm512_dpbusd_epi32(std::bit_cast<__m512i>(sum), std::bit_cast<__m512i>(x), std::bit_cast<__m512i>(w)));
}
#elif defined(__AVX512BW__)
QUENCH_INLINE I32 add_byte_products(I32 sum, U32 x, U32 w) {
  // Even and odd apart, in 16 bits: a pair of byte products may overflow.
  const __m512i a = std::bit_cast<__m512i>(x), b = std::bit_cast<__m512i>(w);
  const __m512i even =
      _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)), _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
  return sum + std::bit_cast<I32>(even) + std::bit_cast<I32>(odd);
}
#elif defined(__AVX2__)
QUENCH_INLINE I32 add_byte_products(I32 sum, U32 x, U32 w) {
  const __m256i a = std::bit_cast<__m256i>(x), b = std::bit_cast<__m256i>(w);
  const __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return sum + std::bit_cast<I32>(even) + std::bit_cast<I32>(odd);
}
#elif defined(__ARM_FEATURE_MATMUL_INT8)
QUENCH_INLINE I32 add_byte_products(I32 sum, U32 x, U32 w) {
  return std::bit_cast<I32>(
      vusdotq_s32(std::bit_cast<int32x4_t>(sum), std::bit_cast<uint8x16_t>(x), std::bit_cast<int8x16_t>(w)));
}
#elif defined(__aarch64__)
// x w = (x - 128) w + 128 w, with x - 128 in int8. The second term is shared by the rows of x.
QUENCH_INLINE I32 add_byte_products(I32 sum, U32 x, U32 w) {
  const auto a = std::bit_cast<int8x16_t>(x ^ 0x80808080u), b = std::bit_cast<int8x16_t>(w);
#if defined(__ARM_FEATURE_DOTPROD)
  const int32x4_t negative = vdotq_s32(vdupq_n_s32(0), b, vdupq_n_s8(-128));
  return std::bit_cast<I32>(vdotq_s32(std::bit_cast<int32x4_t>(sum) - negative, a, b));
#else
  const int32x4_t products =
      vpaddq_s32(vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b))), vpaddlq_s16(vmull_high_s8(a, b)));
  return std::bit_cast<I32>(std::bit_cast<int32x4_t>(sum) + products + vshlq_n_s32(vpaddlq_s16(vpaddlq_s8(b)), 7));
#endif
}
#else
QUENCH_INLINE I32 add_byte_products(I32 sum, U32 x, U32 w) {
  for (int byte = 0; byte < 4; ++byte)
    sum += std::bit_cast<I32>((x >> (8 * byte)) & 255u) * (std::bit_cast<I32>(w << (24 - 8 * byte)) >> 24);
  return sum;
}
#endif

struct IntegerWay {
  using X = std::uint8_t;
  using Part = I32;
  static constexpr int kWidth = 4 * kLanes, kBlockBytes = 4 * kLanes;
  static QUENCH_INLINE F32 sum(const Part (&part)[2]) { return to_f32(part[0] + part[1]); }
  template <int kRows, int kChain>
  static QUENCH_INLINE void multiply(U32 w, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    unrolled<kRows>([&](auto row) QUENCH_INLINE_LAMBDA {
      part[row][kChain] = add_byte_products(part[row][kChain], load_words(x + row * stride), w);
    });
  }
};

struct IntegerNibbles : IntegerWay {
  static constexpr int kPerLane = 8, kVectors = 2, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 2 * position + vector; }
#if defined(__AVX2__) && !defined(__AVX512F__)
  // Four u8 x int4 products fit into 16 bits.
  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const auto words = std::bit_cast<__m256i>(load_words(codes));
    const __m256i values =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i even = _mm256_shuffle_epi8(values, _mm256_and_si256(words, nibble));
    const __m256i odd = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(words, 4), nibble));
    unrolled<kRows>([&](auto row) QUENCH_INLINE_LAMBDA {
      const auto products = [&](__m256i w, int vector) QUENCH_INLINE_LAMBDA {
        return _mm256_maddubs_epi16(std::bit_cast<__m256i>(load_words(x + row * stride + vector * kWidth)), w);
      };
      part[row][0] += std::bit_cast<I32>(
          _mm256_madd_epi16(_mm256_add_epi16(products(even, 0), products(odd, 1)), _mm256_set1_epi16(1)));
    });
  }
#else
#if defined(__aarch64__)
  static QUENCH_INLINE U32 low_nibbles(U32 words) {
    return std::bit_cast<U32>(vshrq_n_s8(vshlq_n_s8(std::bit_cast<int8x16_t>(words), 4), 4));
  }
  static QUENCH_INLINE U32 high_nibbles(U32 words) {
    return std::bit_cast<U32>(vshrq_n_s8(std::bit_cast<int8x16_t>(words), 4));
  }
#else
  static QUENCH_INLINE U32 low_nibbles(U32 words) {
    return extend(words);
  }
  static QUENCH_INLINE U32 high_nibbles(U32 words) {
    return extend(words >> 4);
  }
  // (n ^ 8) - 8, without carries between bytes.
  static QUENCH_INLINE U32 extend(U32 words) {
    const U32 flipped = (words & 0x0F0F0F0Fu) ^ 0x08080808u;
    return ((flipped | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
  }
#endif
  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const U32 words = load_words(codes);
    multiply<kRows, 0>(low_nibbles(words), x, stride, part);
    multiply<kRows, 1>(high_nibbles(words), x + kWidth, stride, part);
  }
#endif
};

struct IntegerBytes : IntegerWay {
  static constexpr int kPerLane = 4, kVectors = 1, kBlock = kPerLane * kLanes;
  static constexpr int element(int, int position) { return position; }
  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    multiply<kRows, 0>(load_words(codes), x, stride, part);
  }
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
