#pragma once
// Micro-kernels for in-cache GEMMs: C (+)= A B, f32 accumulators in registers over K; B and C row-major, A with any
// strides. Operands are f32, or bf16 pairs adjacent along K where the CPU has the instruction.

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Lower K index in the lower half.
struct Bf16Pair {
  std::uint32_t bits;
};

template <class Operand>
inline constexpr std::int64_t kPack = 1;
template <>
inline constexpr std::int64_t kPack<Bf16Pair> = 2;

QUENCH_INLINE F32 load_operands(const float* p) {
  return load(p, FullVector{});
}
QUENCH_INLINE F32 broadcast_operand(const float* p) {
#if defined(__aarch64__)
  return vdupq_n_f32(*p);  // keeps -0, which adds nothing to a sum; no addition per operand
#else
  return broadcast(*p);
#endif
}
QUENCH_INLINE F32 multiply_add(F32 a, F32 b, F32 c) {
  return fma(a, b, c);
}

#if defined(__AVX512BF16__)
inline constexpr bool kHasBf16Products = true;
QUENCH_INLINE __m512bh load_operands(const Bf16Pair* p) {
  return std::bit_cast<__m512bh>(_mm512_loadu_si512(p));
}
QUENCH_INLINE __m512bh broadcast_operand(const Bf16Pair* p) {
  std::int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<__m512bh>(_mm512_set1_epi32(bits));
}
QUENCH_INLINE F32 multiply_add(__m512bh a, __m512bh b, F32 c) {
  return _mm512_dpbf16_ps(c, a, b);
}
#else
inline constexpr bool kHasBf16Products = false;
#endif

// 24 accumulators of 32 registers with AVX-512, 12 of 16 with AVX2.
inline constexpr int kMicroRows = 6;
#if defined(__AVX512F__) || defined(__aarch64__)  // 32 registers
inline constexpr int kMicroVectors = 4;
#else
inline constexpr int kMicroVectors = 2;
#endif

// Strides count operands.
template <class Operand>
struct MicroGemm {
  const Operand* a;  // (row, k) at a[row * a_row + k * a_depth]
  std::int64_t a_row, a_depth;
  const Operand* b;  // [depth, columns]
  std::int64_t b_row;
  float* c;  // [rows, columns], padded to whole vectors
  std::int64_t c_row;
  std::int64_t depth;
};

template <bool kAccumulate, int kRows, int kVectors, class Operand>
QUENCH_INLINE void micro_block(const MicroGemm<Operand>& g, std::int64_t column) {
  const Operand* b = g.b + column;
  float* c = g.c + column;
  F32 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kAccumulate ? load(c + r * g.c_row + v * kLanes, FullVector{}) : F32{};
  for (std::int64_t k = 0; k < g.depth; ++k) {
    decltype(load_operands(b)) row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load_operands(b + k * g.b_row + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const auto factor = broadcast_operand(g.a + r * g.a_row + k * g.a_depth);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = multiply_add(factor, row[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) store(c + r * g.c_row + v * kLanes, sums[r][v], FullVector{});
}

template <bool kAccumulate, int kRows, class Operand>
void micro_rows(const MicroGemm<Operand>& g, std::int64_t vectors) {
  std::int64_t v = 0;
  for (; v + kMicroVectors <= vectors; v += kMicroVectors)
    micro_block<kAccumulate, kRows, kMicroVectors>(g, v * kLanes);
  if constexpr (kMicroVectors > 2) {
    if (v + 3 == vectors) return micro_block<kAccumulate, kRows, 3>(g, v * kLanes);
    if (v + 2 == vectors) return micro_block<kAccumulate, kRows, 2>(g, v * kLanes);
  }
  if (v < vectors) micro_block<kAccumulate, kRows, 1>(g, v * kLanes);
}

// rows <= kMicroRows.
template <bool kAccumulate, class Operand>
void micro_gemm(const MicroGemm<Operand>& g, std::int64_t rows, std::int64_t vectors) {
  switch (rows) {
    case 6: return micro_rows<kAccumulate, 6>(g, vectors);
    case 5: return micro_rows<kAccumulate, 5>(g, vectors);
    case 4: return micro_rows<kAccumulate, 4>(g, vectors);
    case 3: return micro_rows<kAccumulate, 3>(g, vectors);
    case 2: return micro_rows<kAccumulate, 2>(g, vectors);
    case 1: return micro_rows<kAccumulate, 1>(g, vectors);
    default: return;
  }
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
