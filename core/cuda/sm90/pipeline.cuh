#pragma once
// Pipeline and warp specialisation of the persistent SM90 GEMMs.
//
// One CTA per SM, 384 threads: a producer warp issues TMA loads into a 4-stage mbarrier pipeline; two consumer
// warpgroups run wgmma, 64 rows each (mainloop.cuh, *epilogue.cuh). A cluster computes vertically adjacent tiles with B
// multicast, each CTA issuing its share.

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/sm90/ptx.cuh"
#include "core/cuda/sm90/tile_scheduler.cuh"

namespace quench::cuda {

inline constexpr int kStages = 4, kCtaThreads = 384, kConsumerWarps = 8;
inline constexpr std::uint32_t kStageBytesA = kTileM * kSwizzleBytes, kStageBytesB = kTileN * kSwizzleBytes;
inline constexpr std::uint32_t kStageBytes = kStageBytesA + kStageBytesB;
// Box of an MN-major operand: 64 rows.
inline constexpr std::uint32_t kBoxBytes = 64 * kSwizzleBytes;
// 16 rows per consumer warp, padded against bank conflicts.
inline constexpr std::uint32_t kEpilogueRowBytes = kSwizzleBytes + 16, kEpilogueWarpBytes = 16 * kEpilogueRowBytes;
// Column scales per consumer warp.
inline constexpr std::uint32_t kScaleWarpBytes = kTileN * 4;
inline constexpr std::uint32_t kEpilogueBytes = kConsumerWarps * (kEpilogueWarpBytes + kScaleWarpBytes);
// Includes 1,024 bytes of alignment slack.
[[nodiscard]] constexpr std::size_t smem_bytes(std::uint32_t epilogue_bytes) {
  return kStages * kStageBytes + epilogue_bytes + 1024 + (2 * kStages + kConsumerWarps) * 8;
}
inline constexpr std::size_t kSmemBytes = smem_bytes(kEpilogueBytes);
static_assert(kSmemBytes <= 227 * 1024);
// Below it GEMMs are bound by reading weights.
inline constexpr std::int64_t kMinTiledRows = 512;

struct PipelineState {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

struct SharedStorage {
  std::uint32_t stages, out, scales, barriers;
  __device__ std::uint32_t a(int stage) const { return stages + static_cast<std::uint32_t>(stage) * kStageBytes; }
  __device__ std::uint32_t b(int stage) const { return a(stage) + kStageBytesA; }
  __device__ std::uint32_t full(int stage) const { return barriers + 8 * static_cast<std::uint32_t>(stage); }
  __device__ std::uint32_t empty(int stage) const { return full(stage) + 8 * kStages; }
  // mbarrier for the consumer warp's own loads.
  __device__ std::uint32_t fetched() const { return barriers + 8 * (2 * kStages + threadIdx.x / 32 - 4); }
};

template <GemmKind kKind, class Operand, int kCluster>
__device__ void issue_stage(const SharedStorage& shared, int stage, const CUtensorMap* map_a, const CUtensorMap* map_b,
                            const WorkTile& work, int k, std::uint32_t rank) {
  using Layout = OperandLayout<kKind, Operand>;
  const std::uint32_t barrier = shared.full(stage);
  const int row = static_cast<int>(work.row), column = static_cast<int>(work.column);
  const int at = static_cast<int>(work.k_begin) + k;
  mbarrier_arrive_expect_tx(barrier, kStageBytes);
  const auto load_a = [&](std::uint32_t to, int x, int y) {
    if constexpr (kIsSymmetric<kKind>)
      tma_load(to, map_a, barrier, x, y, work.group);
    else
      tma_load(to, map_a, barrier, x, y);
  };
  if constexpr (Layout::kMnMajorA) {
#pragma unroll
    for (int i = 0; i < kTileM / 64; ++i)
      load_a(shared.a(stage) + static_cast<std::uint32_t>(i) * kBoxBytes, row + 64 * i, at);
  } else {
    load_a(shared.a(stage), at, row);
  }
  const auto load_b = [&](std::uint32_t to, int x, int y) {
    constexpr auto kAll = static_cast<std::uint16_t>((1 << kCluster) - 1);
    if constexpr (kCluster > 1) {
      if constexpr (kHasOneB<kKind>)
        tma_load_multicast(kAll, to, map_b, barrier, x, y);
      else
        tma_load_multicast(kAll, to, map_b, barrier, x, y, work.group);
    } else if constexpr (kHasOneB<kKind>) {
      tma_load(to, map_b, barrier, x, y);
    } else {
      tma_load(to, map_b, barrier, x, y, work.group);
    }
  };
  constexpr std::uint32_t kPart = kStageBytesB / kCluster;
  const std::uint32_t to = shared.b(stage) + rank * kPart;
  const int first = column + static_cast<int>(rank) * (kTileN / kCluster);
  if constexpr (Layout::kMnMajorB) {
#pragma unroll
    for (int i = 0; i < kTileN / 64 / kCluster; ++i)
      load_b(to + static_cast<std::uint32_t>(i) * kBoxBytes, first + 64 * i, at);
  } else {
    load_b(to, at, first);
  }
}

// Lane 0 issues.
template <GemmKind kKind, class Operand, int kCluster>
__device__ void producer_loop(const SharedStorage& shared, const CUtensorMap* map_a, const CUtensorMap* map_b,
                              const std::int32_t* ends, const ProblemShape& s, std::uint32_t rank) {
  PipelineState pipe;
  for (int tile = static_cast<int>(blockIdx.x) / kCluster;; tile += static_cast<int>(gridDim.x) / kCluster) {
    const WorkTile work = work_tile<kKind, kCluster>(ends, s, tile, rank);
    if (work.group < 0) return;
    if (threadIdx.x == 0) {
      for (int k = 0; k < work.k_extent; k += OperandLayout<kKind, Operand>::kTileK) {
        mbarrier_wait(shared.empty(pipe.stage), pipe.phase ^ 1);
        issue_stage<kKind, Operand, kCluster>(shared, pipe.stage, map_a, map_b, work, k, rank);
        pipe.advance();
      }
    }
    __syncwarp();
  }
}

// Release in every CTA that writes to the stage.
template <int kCluster>
__device__ void consumer_release(const SharedStorage& shared, int stage) {
  const std::uint32_t lane = threadIdx.x % 32;
  if constexpr (kCluster == 1) {
    if (lane == 0) mbarrier_arrive(shared.empty(stage));
  } else {
    if (lane < kCluster) mbarrier_arrive_remote(shared.empty(stage), lane);
  }
}

// produce(shared, rank) in the producer warp, consume(shared, rank) in the consumer warpgroups; rank in the cluster.
// kBytes: epilogue storage.
template <int kCluster, std::uint32_t kBytes, class Produce, class Consume>
__device__ void run_warp_specialized(unsigned char* memory, const Produce& produce, const Consume& consume) {
  SharedStorage shared;
  shared.stages = (shared_address(memory) + 1023u) & ~1023u;
  shared.out = shared.stages + kStages * kStageBytes;
  shared.scales = shared.out + kConsumerWarps * kEpilogueWarpBytes;
  shared.barriers = shared.out + kBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(shared.full(i), 1);
      mbarrier_init(shared.empty(i), kConsumerWarps * kCluster);
    }
    for (int i = 0; i < kConsumerWarps; ++i) mbarrier_init(shared.full(2 * kStages + i), 1);
    fence_mbarrier_init();
  }
  std::uint32_t rank = 0;
  if constexpr (kCluster > 1) {
    rank = cluster_rank();
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < 128) {
    warpgroup_reg_dealloc<40>();
    if (threadIdx.x < 32) produce(shared, rank);
  } else {
    warpgroup_reg_alloc<232>();
    consume(shared, rank);
  }
  // No CTA exits before its cluster's last remote write.
  if constexpr (kCluster > 1) {
    __syncwarp();
    cluster_sync();
  }
}

// Tiles in work_tile() order.
template <GemmKind kKind, class Operand, int kCluster, std::uint32_t kBytes = kEpilogueBytes, class Consume>
__device__ void run_persistent_gemm(unsigned char* memory, const CUtensorMap* map_a, const CUtensorMap* map_b,
                                    const std::int32_t* ends, const ProblemShape& s, const Consume& consume) {
  run_warp_specialized<kCluster, kBytes>(
      memory,
      [&](const SharedStorage& shared, std::uint32_t rank) {
        producer_loop<kKind, Operand, kCluster>(shared, map_a, map_b, ends, s, rank);
      },
      consume);
}

[[nodiscard]] inline int ceil_div(std::int64_t n, std::int64_t tile) {
  return static_cast<int>((n + tile - 1) / tile);
}

// Whole clusters, at most the resident number.
[[nodiscard]] inline unsigned persistent_grid(const OpLaunch& launch, std::int64_t most_tiles, int cluster) {
  const std::int64_t clusters = std::min<std::int64_t>(sm_count(launch.device()) / cluster, most_tiles);
  return static_cast<unsigned>(clusters * cluster);
}

// Clusters of two, given rows for both CTAs.
inline constexpr std::int64_t kClusterRows = 2048;
[[nodiscard]] inline int cluster_size_for(std::int64_t rows, std::int64_t groups) {
  return rows >= kClusterRows * groups ? 2 : 1;
}

// 32-bit TMA coordinates.
[[nodiscard]] inline bool fits_tma_index(const Tensor& t) {
  return t.size(0) < (std::int64_t{1} << 31) - 2 * kTileN;
}

[[nodiscard]] inline bool has_sm90_code(Device device) {
  return code_capability(device) == 90;
}

// Rows of C after the last group; row size: a multiple of 16 bytes.
void zero_tail_rows(const OpLaunch& launch, const Tensor& c, const Tensor& ends);

}  // namespace quench::cuda
