#pragma once
// Warp MMAs of float8 and int8 operands for multiply_tile() (core/cuda/sm80/mma_tile.cuh), both K-major, codes in pairs
// as its 16-bit elements: kMmaDepth is 128 codes.
//
// SM89 and later: mma.m16n8k32 on float8. SM80: codes decoded to bf16, which holds every e4m3 and e5m2 value, and
// mma.m16n8k16; both operands take the same permutation of K. int8: mma.m16n8k32 with exact s32 accumulators, kept as
// the bits of MmaSums.

#include "core/cuda/sm80/mma_tile.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define QUENCH_HAS_FLOAT8_MMA 1
#endif

namespace quench::cuda {

inline constexpr std::int64_t kFloat8MmaDepth = 2 * kMmaDepth;  // codes per K step

struct E4m3Codes {
  static constexpr std::uint32_t kExponent = 0x7F7F7F7Fu, kNext = 0x01010101u;  // NaN: S.1111.111
  static constexpr int kShift = 4;                                              // to bf16's exponent and fraction
  static constexpr std::uint32_t kRebias = 0x7B807B80u;                         // 2^120
};
struct E5m2Codes {
  static constexpr std::uint32_t kExponent = 0x7C7C7C7Cu, kNext = 0x04040404u;  // infinity, NaN: S.11111.xx
  static constexpr int kShift = 3;
  static constexpr std::uint32_t kRebias = 0x77807780u;  // 2^112
};

// bf16 values of four codes: bytes 0 and 2 in `even`, 1 and 3 in `odd`. Exact; infinities and NaN are kept.
template <class Codes>
__device__ inline void decode_pairs(std::uint32_t codes, std::uint32_t& even, std::uint32_t& odd) {
  constexpr std::uint32_t kSign = 0x80008000u, kMagnitude = (0x7F007F00u >> Codes::kShift);
  const std::uint32_t high = codes & 0xFF00FF00u, low = (codes << 8) & 0xFF00FF00u;
  const std::uint32_t odd_bits = (high & kSign) | (high >> Codes::kShift & kMagnitude);
  const std::uint32_t even_bits = (low & kSign) | (low >> Codes::kShift & kMagnitude);
  // fma: SM80 has no bf16 multiplication; subnormal operands are exact.
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(odd) : "r"(odd_bits), "r"(Codes::kRebias), "r"(kSign));
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(even) : "r"(even_bits), "r"(Codes::kRebias), "r"(kSign));
  const std::uint32_t special = ((codes & Codes::kExponent) + Codes::kNext) & 0x80808080u;
  if (special != 0) {
    const std::uint32_t odd_mask = (special >> 15 & 0x00010001u) * 0xFFFFu;
    const std::uint32_t even_mask = (special >> 7 & 0x00010001u) * 0xFFFFu;
    odd = (odd & ~odd_mask) | ((odd_bits | 0x7F807F80u) & odd_mask);
    even = (even & ~even_mask) | ((even_bits | 0x7F807F80u) & even_mask);
  }
}

template <class Left, class Right>
__device__ inline void mma_m16n8k32_float8(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                           std::uint32_t b1) {
#ifdef QUENCH_HAS_FLOAT8_MMA
#define QUENCH_FLOAT8_MMA(left, right)                                      \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." left "." right      \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<Left, E5m2Codes>)
    QUENCH_FLOAT8_MMA("e5m2", "e4m3");
  else if constexpr (std::is_same_v<Right, E5m2Codes>)
    QUENCH_FLOAT8_MMA("e4m3", "e5m2");
  else
    QUENCH_FLOAT8_MMA("e4m3", "e4m3");
#undef QUENCH_FLOAT8_MMA
#endif
}

__device__ inline void mma_m16n8k32_int8(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  int s[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = __float_as_int(sum[i]);
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] = __int_as_float(s[i]);
}

// 32 codes of K.
struct Int8Mma {
  static __device__ void multiply(MmaSums& sums, const std::uint32_t (&left)[4][4],
                                  const std::uint32_t (&right)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        mma_m16n8k32_int8(sums.values[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
  }
};

// 32 codes of K.
template <class Left, class Right>
struct Float8Mma {
  static __device__ void multiply(MmaSums& sums, const std::uint32_t (&left)[4][4],
                                  const std::uint32_t (&right)[2][4]) {
#ifdef QUENCH_HAS_FLOAT8_MMA
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        mma_m16n8k32_float8<Left, Right>(sums.values[i][j], left[i], right[j / 2][j % 2 * 2],
                                         right[j / 2][j % 2 * 2 + 1]);
#else
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t b[4][2];
#pragma unroll
      for (int j = 0; j < 4; ++j) decode_pairs<Right>(right[j / 2][j % 2 * 2 + half], b[j][0], b[j][1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::uint32_t a[4];
        decode_pairs<Left>(left[i][2 * half], a[0], a[2]);
        decode_pairs<Left>(left[i][2 * half + 1], a[1], a[3]);
#pragma unroll
        for (int j = 0; j < 4; ++j) mma_m16n8k16_bf16(sums.values[i][j], a, b[j][0], b[j][1]);
      }
    }
#endif
  }
};

}  // namespace quench::cuda
