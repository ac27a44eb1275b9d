#pragma once
// Products of small f32 matrices that lie in cache: C (+)= A B with B and C row-major and A strided either way, so that
// one kernel serves A and A^T. A block of C rows stays in registers while the depth is walked once.

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Rows of C per register block, and vectors per row: 24 accumulators of 32 registers with AVX-512, 12 of 16 with AVX2.
inline constexpr int kMicroRows = 6;
#if defined(__AVX512F__)
inline constexpr int kMicroVectors = 4;
#else
inline constexpr int kMicroVectors = 2;
#endif

struct MicroGemm {
  const float* a;  // element (row, k) at a[row * a_row + k * a_depth]
  std::int64_t a_row, a_depth;
  const float* b;  // [depth, columns]
  std::int64_t b_row;
  float* c;  // [rows, columns]; columns are padded to whole vectors
  std::int64_t c_row;
  std::int64_t depth;
};

template <bool kAccumulate, int kRows, int kVectors>
QUENCH_INLINE void micro_block(const MicroGemm& g, const float* a, const float* b, float* c) {
  F32 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kAccumulate ? load(c + r * g.c_row + v * kLanes, FullVector{}) : F32{};
  for (std::int64_t k = 0; k < g.depth; ++k) {
    F32 column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = load(b + k * g.b_row + v * kLanes, FullVector{});
    for (int r = 0; r < kRows; ++r) {
      const F32 factor = broadcast(a[r * g.a_row + k * g.a_depth]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(factor, column[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) store(c + r * g.c_row + v * kLanes, sums[r][v], FullVector{});
}

// kRows rows of C by `vectors` vectors.
template <bool kAccumulate, int kRows>
void micro_rows(const MicroGemm& g, std::int64_t vectors) {
  std::int64_t v = 0;
  for (; v + kMicroVectors <= vectors; v += kMicroVectors)
    micro_block<kAccumulate, kRows, kMicroVectors>(g, g.a, g.b + v * kLanes, g.c + v * kLanes);
  if constexpr (kMicroVectors > 2) {
    if (v + 3 <= vectors) {
      micro_block<kAccumulate, kRows, 3>(g, g.a, g.b + v * kLanes, g.c + v * kLanes);
      v += 3;
    } else if (v + 2 <= vectors) {
      micro_block<kAccumulate, kRows, 2>(g, g.a, g.b + v * kLanes, g.c + v * kLanes);
      v += 2;
    }
  }
  if (v < vectors) micro_block<kAccumulate, kRows, 1>(g, g.a, g.b + v * kLanes, g.c + v * kLanes);
}

// rows <= kMicroRows.
template <bool kAccumulate>
void micro_gemm(const MicroGemm& g, std::int64_t rows, std::int64_t vectors) {
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
