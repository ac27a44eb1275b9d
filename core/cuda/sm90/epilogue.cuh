#pragma once
// Non-overlapped epilogue: scaled accumulators (wgrad: plus beta * C), staged in shared memory for coalesced stores.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm90/pipeline.cuh"

namespace quench::cuda {

// Rowwise scales of a consumer warp, encode (float8) or decode (int8): two row scales per thread, column scales in
// shared memory. Constructed early, the loads overlap the mainloop.
template <bool kEncode>
struct RowColumnScales {
  static constexpr bool kScales = true;
  float rows[2];
  float columns[8];

  __device__ RowColumnScales(const float* row_scales, const float* column_scales, const ProblemShape& s,
                             const WorkTile& work) {
    const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const std::int64_t row = work.row + 16 * consumer + lane / 4 + 8 * side;
      rows[side] = row < work.end ? row_scales[row] : 1.0f;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::int64_t column = work.column + 8 * lane + i;
      columns[i] = column < s.columns ? column_scales[column] : 1.0f;
    }
  }
  // As decode factors. Warp collective.
  __device__ void stage_columns(std::uint32_t to) {
    const std::uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (8 * lane + i) * 4), "f"(factor(columns[i])) : "memory");
#pragma unroll
    for (float& row : rows) row = factor(row);
    __syncwarp();
  }
  static __device__ float factor(float scale) {
    return kEncode ? __frcp_rn(scale) : scale;
  }
  // Thread's two columns in column block `eight`.
  static __device__ float2 column_scales(std::uint32_t placed, int eight) {
    float2 result;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(result.x), "=f"(result.y)
                 : "r"(placed + static_cast<std::uint32_t>(8 * eight) * 4 + threadIdx.x % 4 * 8));
    return result;
  }
};
struct NoScales {
  static constexpr bool kScales = false;
};

// 16x256 accumulators times scales, plus beta * C with kAdds.
template <bool kAdds, class C, class Accumulator, class EpilogueScales>
__device__ void store_accumulators(const SharedStorage& shared, const Accumulator (&acc)[128], C* c,
                                   const ProblemShape& s, const WorkTile& work, float beta, EpilogueScales scales) {
  // One rounding, after beta * C.
  using Kept = std::conditional_t<kAdds, float, C>;
  constexpr int kWidth = kSwizzleBytes / sizeof(Kept), kPiece = 16 / sizeof(Kept), kBlocks = kWidth / 8;
  const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t out = shared.out + static_cast<std::uint32_t>(consumer) * kEpilogueWarpBytes;
  const std::uint32_t column_scales = shared.scales + static_cast<std::uint32_t>(consumer) * kScaleWarpBytes;
  const std::int64_t first_row = work.row + 16 * consumer;
  if constexpr (EpilogueScales::kScales) scales.stage_columns(column_scales);
#pragma unroll
  for (int part = 0; part < kTileN / kWidth; ++part) {
    const std::int64_t first = work.column + part * kWidth;
    if (first >= s.columns) return;
    float2 factor[kBlocks];
    if constexpr (EpilogueScales::kScales) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) factor[j] = EpilogueScales::column_scales(column_scales, part * kBlocks + j);
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int block = part * kBlocks + j;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float2 pair = make_float2(static_cast<float>(acc[4 * block + 2 * side]),
                                  static_cast<float>(acc[4 * block + 2 * side + 1]));
        if constexpr (EpilogueScales::kScales)
          pair = make_float2(pair.x * scales.rows[side] * factor[j].x, pair.y * scales.rows[side] * factor[j].y);
        const std::uint32_t to = out + static_cast<std::uint32_t>(lane / 4 + 8 * side) * kEpilogueRowBytes +
                                 static_cast<std::uint32_t>((8 * j + lane % 4 * 2) * static_cast<int>(sizeof(Kept)));
        if constexpr (sizeof(Kept) == 4)
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(pair.x), "f"(pair.y) : "memory");
        else
          asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(pack_pair<C>(pair.x, pair.y)) : "memory");
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * i + lane / 8, chunk = lane % 8;
      uint4 words;
      asm volatile(
          "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
          : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
          : "r"(out + static_cast<std::uint32_t>(row) * kEpilogueRowBytes + static_cast<std::uint32_t>(chunk) * 16)
          : "memory");
      const std::int64_t column = first + chunk * kPiece;
      if (first_row + row >= work.end || column >= s.columns) continue;
      C* to = c + (first_row + row) * s.columns + column;
      if constexpr (kAdds) {
        Vector<float, 4> values{__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                                __uint_as_float(words.w)};
        if (beta != 0.0f) {
          const Vector<float, 4> old = unpack(load_packed<C, 4>(to, 0));
#pragma unroll
          for (int k = 0; k < 4; ++k) values[k] += beta * old[k];
        }
        store_values<C, 4>(to, 0, values);
      } else {
        *reinterpret_cast<uint4*>(to) = words;
      }
    }
    __syncwarp();
  }
}

// Only wgrad adds C; otherwise values are rounded before staging: half the shared-memory traffic.
template <GemmKind kKind, class C, class EpilogueScales>
__device__ void store_epilogue(const SharedStorage& shared, const float (&acc)[128], C* c, const ProblemShape& s,
                               const WorkTile& work, float beta, EpilogueScales scales) {
  if constexpr (kKind == GemmKind::wgrad) {
    if (beta != 0.0f) return store_accumulators<true>(shared, acc, c, s, work, beta, scales);
  }
  store_accumulators<false>(shared, acc, c, s, work, beta, scales);
}

}  // namespace quench::cuda
