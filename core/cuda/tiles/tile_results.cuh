#pragma once
// How the sums of a tile leave the registers of the warps that made them (tile_pipeline.cuh).

#include "core/cuda/common/pack.cuh"
#include "core/cuda/tiles/tile_pipeline.cuh"

namespace quench::cuda {

// Factors of a tile's rows and columns, reciprocals of scales: those of a thread's two rows, and of eight columns for
// its warp, which reads them before it needs them.
struct TileFactors {
  static constexpr bool kScales = true;
  float rows[2];
  float columns[8];

  __device__ TileFactors(const float* row_scales, const float* column_scales, const TileShape& s,
                         const TileWork& work) {
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
  // Before the first use of column().
  __device__ void place(std::uint32_t to) {
    const std::uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (8 * lane + i) * 4), "f"(__frcp_rn(columns[i])) : "memory");
#pragma unroll
    for (float& row : rows) row = __frcp_rn(row);
    __syncwarp();
  }
  // Of a thread's two columns of the tile's eight with this number, where they have been placed.
  static __device__ float2 of_columns(std::uint32_t placed, int eight) {
    float2 result;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(result.x), "=f"(result.y)
                 : "r"(placed + static_cast<std::uint32_t>(8 * eight) * 4 + threadIdx.x % 4 * 8));
    return result;
  }
};
struct NoFactors {
  static constexpr bool kScales = false;
};

// Stores a warp's 16 x 256 sums, times the factors, plus beta times what was there. They go through shared memory, 128
// bytes of 16 rows at a time, so that neighbours write neighbouring 16 bytes.
template <bool kAdds, class C, class Factors>
__device__ void store_tile(const TileMemory& shared, const float (&sums)[128], C* c, const TileShape& s,
                           const TileWork& work, float beta, Factors factors) {
  // What is still to be added to is not rounded yet.
  using Kept = std::conditional_t<kAdds, float, C>;
  constexpr int kWidth = kLineBytes / sizeof(Kept), kPiece = 16 / sizeof(Kept), kBlocks = kWidth / 8;
  const int consumer = static_cast<int>(threadIdx.x) / 32 - 4, lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t out = shared.out + static_cast<std::uint32_t>(consumer) * kOutBytes;
  const std::uint32_t of_columns = shared.factors + static_cast<std::uint32_t>(consumer) * kFactorBytes;
  const std::int64_t first_row = work.row + 16 * consumer;
  if constexpr (Factors::kScales) factors.place(of_columns);
#pragma unroll
  for (int part = 0; part < kTileColumns / kWidth; ++part) {
    const std::int64_t first = work.column + part * kWidth;
    if (first >= s.columns) return;
    float2 factor[kBlocks];
    if constexpr (Factors::kScales) {
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) factor[j] = Factors::of_columns(of_columns, part * kBlocks + j);
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int block = part * kBlocks + j;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float2 pair = make_float2(sums[4 * block + 2 * side], sums[4 * block + 2 * side + 1]);
        if constexpr (Factors::kScales)
          pair = make_float2(pair.x * factors.rows[side] * factor[j].x, pair.y * factors.rows[side] * factor[j].y);
        const std::uint32_t to = out + static_cast<std::uint32_t>(lane / 4 + 8 * side) * kOutLine +
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
      const int row = 4 * i + lane / 8, piece = lane % 8;
      uint4 words;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                   : "r"(out + static_cast<std::uint32_t>(row) * kOutLine + static_cast<std::uint32_t>(piece) * 16)
                   : "memory");
      const std::int64_t column = first + piece * kPiece;
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

// The same, where only a gradient adds, and only if there is something to add to: sums that are rounded before they
// pass through shared memory are half the bytes there.
template <Product kProduct, class C, class Factors>
__device__ void store_result(const TileMemory& shared, const float (&sums)[128], C* c, const TileShape& s,
                             const TileWork& work, float beta, Factors factors) {
  if constexpr (kProduct == Product::wgrad) {
    if (beta != 0.0f) return store_tile<true>(shared, sums, c, s, work, beta, factors);
  }
  store_tile<false>(shared, sums, c, s, work, beta, factors);
}

}  // namespace quench::cuda
