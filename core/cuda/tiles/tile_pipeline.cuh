#pragma once
// What the persistent kernels of grouped products (symmetric ones, those with a low-rank update) share: which tile
// comes next, and the ring of stages in shared memory that one warp fills by TMA. How sums leave: leaving_tile.cuh,
// tile_results.cuh.
//
// A cluster of blocks, one a multiprocessor, takes tiles in turn: 128 rows a block, below each other, and the same 256
// columns, whose operand every block fetches a part of for all. One warp queues copies, 128 bytes of the contraction at
// a time, four of them ahead; two warp groups multiply, each half of the block's rows. Blocks find the tiles from
// `ends` on the device. Tiles of a group go by bands of kBandRows rows, columns last, so that what the multiprocessors
// read at one time fits the second-level cache.

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/tiles/group_tiles.cuh"
#include "core/cuda/tiles/hopper.cuh"
#include "core/number/float8.h"

namespace quench::cuda {

inline constexpr int kTileRows = 128, kTileColumns = 256, kStages = 4, kBandRows = 12;
inline constexpr int kTileThreads = 384, kConsumerWarps = 8;
inline constexpr std::uint32_t kLineBytes =
    128;  // of the contraction in a stage; 64 lines are a box of an outer operand
inline constexpr std::uint32_t kLeftBytes = kTileRows * kLineBytes, kRightBytes = kTileColumns * kLineBytes;
inline constexpr std::uint32_t kStageBytes = kLeftBytes + kRightBytes, kBoxBytes = 64 * kLineBytes;
// Of a warp's results on their way out: 16 rows, apart so that neighbours have other banks.
inline constexpr std::uint32_t kOutLine = kLineBytes + 16, kOutBytes = 16 * kOutLine;
// Of a warp's copy of the columns' factors.
inline constexpr std::uint32_t kFactorBytes = kTileColumns * 4;
inline constexpr std::uint32_t kResultBytes = kConsumerWarps * (kOutBytes + kFactorBytes);
// With `result_bytes` behind the stages.
[[nodiscard]] constexpr std::size_t tile_shared_bytes(std::uint32_t result_bytes) {
  return kStages * kStageBytes + result_bytes + 1024 + (2 * kStages + kConsumerWarps) * 8;
}
inline constexpr std::size_t kTileSharedBytes = tile_shared_bytes(kResultBytes);
static_assert(kTileSharedBytes <= 227 * 1024);
// Fewer rows are a matter of reading the weights, which smaller tiles do as well.
inline constexpr std::int64_t kFewestTiledRows = 512;

// The last two: matrices of a batch that are symmetric, of which tiles of 256 x 256 up to the diagonal are computed
// (symmetric_gemm.cu).
enum class Product { forward, dgrad, wgrad, symmetric, symmetric_outer };

template <Product kProduct>
inline constexpr bool kIsSymmetric = kProduct == Product::symmetric || kProduct == Product::symmetric_outer;

// How the operands of a product lie. Outer: the contraction is not the axis along the rows; float8 tensor cores want it
// there.
template <Product kProduct, class Operand>
struct TileLayout {
  static constexpr bool kFloat8 = std::is_same_v<Operand, E4m3>;
  static constexpr bool kOuterLeft = !kFloat8 && (kProduct == Product::wgrad || kProduct == Product::symmetric_outer);
  static constexpr bool kOuterRight = !kFloat8 && kProduct != Product::forward && kProduct != Product::symmetric;
  // Of the contraction in a stage, and in one instruction.
  static constexpr int kDepth = kFloat8 ? 128 : 64, kSlice = kDepth / 4;
  // Distance of neighbouring slices within a stage.
  static constexpr std::uint32_t kLeftStep = kOuterLeft ? 16 * kLineBytes : 32,
                                 kRightStep = kOuterRight ? 16 * kLineBytes : 32;
};

struct TileShape {
  // row_tiles of wgrad and symmetric products: of one group, a cluster's rows each. A group of symmetric ones is a
  // matrix.
  int groups, row_tiles, column_tiles;
  std::int64_t rows, columns, depth;  // of C (wgrad, symmetric: of a group's); depth: of the contraction, but for wgrad
};

struct TileWork {
  int group = -1;        // -1: none is left
  std::int64_t row = 0;  // first row of the block's tile in C (wgrad: of the group)
  std::int64_t end = 0;  // of its rows
  std::int64_t column = 0;
  std::int64_t begin = 0;  // first index of the contraction
  std::int64_t depth = 0;  // indices of it
};

// The work of a cluster's tile for one of its blocks. All lanes of a warp call it. Numbers of tiles have 32 bits.
template <Product kProduct, int kCluster>
requires(!kIsSymmetric<kProduct>) __device__ TileWork
    find_work(const std::int32_t* ends, const TileShape& s, int tile, std::uint32_t rank) {
  constexpr int kRows = kTileRows * kCluster, kBand = kBandRows / kCluster;
  TileWork work;
  int local = 0, tiles = 0;
  std::int64_t row = 0;
  if constexpr (kProduct == Product::wgrad) {
    const int of_group = s.row_tiles * s.column_tiles;
    work.group = tile / of_group;
    if (work.group >= s.groups) return {};
    work.begin = work.group > 0 ? ends[work.group - 1] : 0;
    work.depth = ends[work.group] - work.begin;
    work.end = s.rows;
    local = tile - work.group * of_group;
    tiles = s.row_tiles;
  } else {
    const GroupTile found = find_group_tile<kRows>(ends, s.groups, ends[s.groups - 1], tile / s.column_tiles);
    if (found.group < 0 || found.group >= s.groups) return work;
    work.group = found.group;
    work.end = found.end;
    work.depth = s.depth;
    local = tile - static_cast<int>(found.first) * s.column_tiles;
    tiles = static_cast<int>(found.end - found.begin + kRows - 1) / kRows;
    row = found.begin;
  }
  const int band = local / (kBand * s.column_tiles), first = band * kBand;
  const int in_band = min(kBand, tiles - first), rest = local - first * s.column_tiles, column = rest / in_band;
  work.row = row + std::int64_t{first + rest - column * in_band} * kRows + rank * kTileRows;
  work.column = std::int64_t{column} * kTileColumns;
  return work;
}

// Line by line of a matrix, up to the diagonal.
template <Product kProduct, int kCluster>
requires(kIsSymmetric<kProduct>) __device__ TileWork
    find_work(const std::int32_t*, const TileShape& s, int tile, std::uint32_t rank) {
  static_assert(kTileRows * kCluster == kTileColumns, "square tiles");
  TileWork work;
  const int of_matrix = s.row_tiles * (s.row_tiles + 1) / 2, group = tile / of_matrix;
  if (group >= s.groups) return work;
  const int local = tile - group * of_matrix;
  int line = 0;  // line (line + 1) / 2 tiles are above it
  while ((line + 1) * (line + 2) / 2 <= local) ++line;
  work.group = group;
  work.end = s.rows;
  work.depth = s.depth;
  work.row = std::int64_t{line} * kTileColumns + rank * kTileRows;
  work.column = std::int64_t{local - line * (line + 1) / 2} * kTileColumns;
  return work;
}

// Where the ring of stages stands.
struct TileRing {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct TileMemory {
  std::uint32_t stages, out, factors, barriers;
  __device__ std::uint32_t left(int stage) const { return stages + static_cast<std::uint32_t>(stage) * kStageBytes; }
  __device__ std::uint32_t right(int stage) const { return left(stage) + kLeftBytes; }
  __device__ std::uint32_t full(int stage) const { return barriers + 8 * static_cast<std::uint32_t>(stage); }
  __device__ std::uint32_t empty(int stage) const { return full(stage) + 8 * kStages; }
  // Of the calling warp, one that multiplies: what it fetches for itself is there.
  __device__ std::uint32_t fetched() const { return barriers + 8 * (2 * kStages + threadIdx.x / 32 - 4); }
};

template <Product kProduct, class Operand, int kCluster>
__device__ void queue_step(const TileMemory& shared, int stage, const CUtensorMap* left, const CUtensorMap* right,
                           const TileWork& work, int k, std::uint32_t rank) {
  using Layout = TileLayout<kProduct, Operand>;
  constexpr bool kWgrad = kProduct == Product::wgrad;
  const std::uint32_t barrier = shared.full(stage);
  const int row = static_cast<int>(work.row), column = static_cast<int>(work.column);
  const int at = static_cast<int>(work.begin) + k;
  arrive_expecting(barrier, kStageBytes);
  const auto fetch_left = [&](std::uint32_t to, int x, int y) {
    if constexpr (kIsSymmetric<kProduct>)
      copy_box(to, left, barrier, x, y, work.group);
    else
      copy_box(to, left, barrier, x, y);
  };
  if constexpr (Layout::kOuterLeft) {
#pragma unroll
    for (int i = 0; i < kTileRows / 64; ++i)
      fetch_left(shared.left(stage) + static_cast<std::uint32_t>(i) * kBoxBytes, row + 64 * i, at);
  } else {
    fetch_left(shared.left(stage), at, row);
  }
  // A matrix, or the group's of a batch.
  const auto fetch_right = [&](std::uint32_t to, int x, int y) {
    constexpr auto kAll = static_cast<std::uint16_t>((1 << kCluster) - 1);
    if constexpr (kCluster > 1) {
      if constexpr (kWgrad)
        copy_box_to(kAll, to, right, barrier, x, y);
      else
        copy_box_to(kAll, to, right, barrier, x, y, work.group);
    } else if constexpr (kWgrad) {
      copy_box(to, right, barrier, x, y);
    } else {
      copy_box(to, right, barrier, x, y, work.group);
    }
  };
  constexpr std::uint32_t kPart = kRightBytes / kCluster;
  const std::uint32_t to = shared.right(stage) + rank * kPart;
  const int first = column + static_cast<int>(rank) * (kTileColumns / kCluster);
  if constexpr (Layout::kOuterRight) {
#pragma unroll
    for (int i = 0; i < kTileColumns / 64 / kCluster; ++i)
      fetch_right(to + static_cast<std::uint32_t>(i) * kBoxBytes, first + 64 * i, at);
  } else {
    fetch_right(to, at, first);
  }
}

// One warp; its first lane does it.
template <Product kProduct, class Operand, int kCluster>
__device__ void produce(const TileMemory& shared, const CUtensorMap* left, const CUtensorMap* right,
                        const std::int32_t* ends, const TileShape& s, std::uint32_t rank) {
  TileRing ring;
  for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
    const TileWork work = find_work<kProduct, kCluster>(ends, s, tile, rank);
    if (work.group < 0) return;
    if (threadIdx.x == 0) {
      for (int k = 0; k < work.depth; k += TileLayout<kProduct, Operand>::kDepth) {
        wait_barrier(shared.empty(ring.stage), ring.parity ^ 1);
        queue_step<kProduct, Operand, kCluster>(shared, ring.stage, left, right, work, k, rank);
        ring.advance();
      }
    }
    __syncwarp();
  }
}

// A warp is done with a stage: every block that writes to it hears so.
template <int kCluster>
__device__ void release_stage(const TileMemory& shared, int stage) {
  const std::uint32_t lane = threadIdx.x % 32;
  if constexpr (kCluster == 1) {
    if (lane == 0) arrive(shared.empty(stage));
  } else {
    if (lane < kCluster) arrive_at(shared.empty(stage), lane);
  }
}

// The frame of a kernel: `produce(shared, rank)` is what the warp does that fills the stages, `multiply(shared, rank)`
// what the warp groups do that multiply. rank: the block's in its cluster. Results have kBytes behind the stages.
template <int kCluster, std::uint32_t kBytes, class Produce, class Multiply>
__device__ void run_roles(unsigned char* memory, const Produce& produce, const Multiply& multiply) {
  TileMemory shared;
  shared.stages = (shared_address(memory) + 1023u) & ~1023u;
  shared.out = shared.stages + kStages * kStageBytes;
  shared.factors = shared.out + kConsumerWarps * kOutBytes;
  shared.barriers = shared.out + kBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(shared.full(i), 1);
      init_barrier(shared.empty(i), kConsumerWarps * kCluster);
    }
    for (int i = 0; i < kConsumerWarps; ++i) init_barrier(shared.full(2 * kStages + i), 1);
    fence_barriers();
  }
  std::uint32_t rank = 0;
  if constexpr (kCluster > 1) {
    rank = cluster_rank();
    cluster_barrier();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x < 32) produce(shared, rank);
  } else {
    take_registers<232>();
    multiply(shared, rank);
  }
  // No block ends while another may write to its memory.
  if constexpr (kCluster > 1) {
    __syncwarp();
    cluster_barrier();
  }
}

// That of a grouped or symmetric product.
template <Product kProduct, class Operand, int kCluster, std::uint32_t kBytes = kResultBytes, class Multiply>
__device__ void run_tiles(unsigned char* memory, const CUtensorMap* left, const CUtensorMap* right,
                          const std::int32_t* ends, const TileShape& s, const Multiply& multiply) {
  run_roles<kCluster, kBytes>(
      memory,
      [&](const TileMemory& shared, std::uint32_t rank) {
        produce<kProduct, Operand, kCluster>(shared, left, right, ends, s, rank);
      },
      multiply);
}

[[nodiscard]] inline int tiles_of(std::int64_t n, std::int64_t tile) {
  return static_cast<int>((n + tile - 1) / tile);
}

// Whole clusters, as many as run at one time.
[[nodiscard]] inline unsigned tile_blocks(const OpLaunch& launch, std::int64_t most_tiles, int cluster) {
  const std::int64_t clusters = std::min<std::int64_t>(multiprocessor_count(launch.device()) / cluster, most_tiles);
  return static_cast<unsigned>(clusters * cluster);
}

// Two blocks share the columns' operand where groups have rows enough for both; else the second would often idle.
inline constexpr std::int64_t kRowsOfAPair = 2048;
[[nodiscard]] inline int cluster_for(std::int64_t rows, std::int64_t groups) {
  return rows >= kRowsOfAPair * groups ? 2 : 1;
}

// Indices that the copies count with 32 bits.
[[nodiscard]] inline bool is_small(const Tensor& t) {
  return t.size(0) < (std::int64_t{1} << 31) - 2 * kTileColumns;
}

[[nodiscard]] inline bool has_tile_code([[maybe_unused]] Device device) {
#if defined(QUENCH_CUDA_WGMMA)
  return compute_capability(device) == 90;
#else
  return false;
#endif
}

// Rows behind the last group become 0. `row_bytes`: a multiple of 16.
void clear_rows_behind(const OpLaunch& launch, const Tensor& c, const Tensor& ends);

}  // namespace quench::cuda
