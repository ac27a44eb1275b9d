#pragma once
// Parameters, tile shapes and tile scheduler of the small-M GEMM. An output tile is kTileRows weight rows of one warp,
// or of `split_k` warps of a CTA, each with a range of K tiles. Persistent CTAs take output tiles strided by the grid.

#include "core/cuda/common/packed_view.cuh"
#include "core/cuda/gemm/staged_rows.cuh"
#include "core/ops/gated_activation.h"

namespace quench::cuda {

inline constexpr int kSmallMThreads = 256, kSmallMWarps = kSmallMThreads / 32;
inline constexpr int kSmallMBlocksPerSm = 2;  // the next kernel's CTAs start while the last ones drain
inline constexpr int kTileRows = 16;          // weight rows
inline constexpr int kKTileBytes = 64;        // 16 for each of four lanes
inline constexpr int kKTilesInFlight = 4;     // in registers, per warp
inline constexpr int kKTilesAhead = 4;        // further ones, prefetched to L2

// Unquantized weight.
struct Values16 {
  using Pair = bfloat16;
  static constexpr int kBits = 16;
};

template <class Codes>
inline constexpr int kTileK = kKTileBytes * 8 / Codes::kBits;
// 16-byte units of x per lane and K tile.
template <class Codes>
inline constexpr int kUnitsPerLane = kTileK<Codes> / 32;

struct SmallMParams {
  TileInput in;
  PackedView w;
  int tiles;            // output tiles
  GroupIndex group_of;  // K tile to quantization group
  int split_k;          // warps per output tile, a divisor of kSmallMWarps
  PackedOutput out;
  const bfloat16* bias;  // optional
  bool gated;
  GatedActivation activation;
  bool constant_weights;  // read_only_weights.h
};

// Lane's place in mma fragments, `groupID` and `threadID_in_group` of the PTX ISA.
struct FragmentLane {
  int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
};

// Weight rows of an output tile. Gated: 8 gate and 8 up rows.
struct TileRows {
  int first, half, last;  // half: 0 without gate
  __device__ TileRows(int tile, std::int64_t rows, bool gated)
      : first(tile * (gated ? kTileRows / 2 : kTileRows)),
        half(gated ? static_cast<int>(rows / 2) : 0),
        last((gated ? half : static_cast<int>(rows)) - 1) {}
  // Past the last row: clamped.
  [[nodiscard]] __device__ int operator[](int r) const {
    return half == 0 ? min(first + r, last) : min(first + r % 8, last) + r / 8 * half;
  }
};

// A warp's output tile and K tiles.
struct SmallMTileScheduler {
  int block_tiles;  // output tiles per CTA
  int tile, tile_step;
  int k_begin, k_end;
  bool overlaps_tiles;  // the next output tile's first loads are issued during the last K tiles

  explicit __device__ SmallMTileScheduler(const SmallMParams& p) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    block_tiles = kSmallMWarps / p.split_k;
    tile_step = static_cast<int>(gridDim.x) * block_tiles;
    const int k_tiles = static_cast<int>(p.w.row_bytes) / kKTileBytes;
    const int split_k_tiles = (k_tiles + p.split_k - 1) / p.split_k;
    k_begin = warp % p.split_k * split_k_tiles;
    k_end = min(k_begin + split_k_tiles, k_tiles);
    overlaps_tiles = split_k_tiles % kKTilesInFlight == 0;
    tile = static_cast<int>(blockIdx.x) * block_tiles + warp / p.split_k;
  }
  // Split-K: one output tile per CTA and warp.
  [[nodiscard]] __device__ bool is_last(const SmallMParams& p) const {
    return p.split_k > 1 || tile + tile_step >= p.tiles;
  }
};

}  // namespace quench::cuda
