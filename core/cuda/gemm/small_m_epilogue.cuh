#pragma once
// Epilogue of the small-M GEMM: bias, gated activation, store; and the split-K reduction over the warps of an output
// tile, in warp order.

#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/gemm/small_m_tile_scheduler.cuh"

namespace quench::cuda {

template <class Pair>
struct SmallMEpilogue {
  const SmallMParams& p;
  const RowScales& row_scales;  // inverse scales of x

  // Row r of the tile, for row `row` of x. `up`: sum of row r + kTileRows / 2 (gated).
  __device__ __forceinline__ void store(int row, const TileRows& tile, int r, float sum, float up) const {
    float scale = 1.0f;
    if constexpr (std::is_same_v<Pair, float16>) scale = row_scales[row];
    Vector<float, 1> result;
    result[0] = biased(sum, scale, tile[r]);
    if (p.gated) {  // unfused rounding: bit-identical to GEMM then swiglu()
      Vector<float, 1> rounded_up;
      rounded_up[0] = rounded<bfloat16>(biased(up, scale, tile[r + kTileRows / 2]));
      result[0] = rounded<bfloat16>(result[0]);
      result = swiglu_of(p.activation, result, rounded_up);
    }
    p.out.write<bfloat16>(row, tile.first + r, result[0]);
  }
  // The lane's sums of an unsplit tile.
  __device__ __forceinline__ void store_tile(int tile_index, const float (&sums)[4]) const {
    const FragmentLane lane;
    const TileRows tile(tile_index, p.w.rows, p.gated);
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int row = 2 * lane.t + column;
      if (row >= p.in.rows || tile_index >= p.tiles) continue;
      if (tile.first + lane.g <= tile.last) store(row, tile, lane.g, sums[column], sums[2 + column]);
      if (!p.gated && tile.first + lane.g + 8 <= tile.last) store(row, tile, lane.g + 8, sums[2 + column], 0);
    }
  }

 private:
  __device__ __forceinline__ float biased(float sum, float scale, int weight_row) const {
    return sum * scale + (p.bias != nullptr ? to_float(p.bias[weight_row]) : 0.0f);
  }
};

// In shared memory.
struct SplitKReduction {
  float partial[kSmallMWarps][kTileRows][kPackedRows];

  __device__ __forceinline__ void stage(const float (&sums)[4], int rows) {
    const FragmentLane lane;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (2 * lane.t + i % 2 < rows) partial[threadIdx.x / 32][lane.g + i / 2 * 8][2 * lane.t + i % 2] = sums[i];
  }
  [[nodiscard]] __device__ __forceinline__ float total(int first_warp, int split_k, int tile_row, int row) const {
    float sum = 0;
    for (int split = 0; split < split_k; ++split) sum += partial[first_warp + split][tile_row][row];
    return sum;
  }
  // CTA collective.
  template <class Pair>
  __device__ __forceinline__ void reduce_and_store(const float (&sums)[4], const SmallMTileScheduler& work,
                                                   const SmallMEpilogue<Pair>& epilogue) {
    const SmallMParams& p = epilogue.p;
    stage(sums, p.in.rows);
    __syncthreads();
    const int block_tiles = work.block_tiles;
    for (int i = static_cast<int>(threadIdx.x); i < block_tiles * kTileRows * p.in.rows; i += kSmallMThreads) {
      const int r = i % kTileRows, local = i / kTileRows % block_tiles, row = i / (kTileRows * block_tiles);
      const TileRows tile(static_cast<int>(blockIdx.x) * block_tiles + local, p.w.rows, p.gated);
      if (tile.first + r > tile.last || (p.gated && r >= kTileRows / 2)) continue;
      const int first_warp = local * p.split_k;
      epilogue.store(row, tile, r, total(first_warp, p.split_k, r, row),
                     p.gated ? total(first_warp, p.split_k, r + kTileRows / 2, row) : 0.0f);
    }
  }
};

}  // namespace quench::cuda
