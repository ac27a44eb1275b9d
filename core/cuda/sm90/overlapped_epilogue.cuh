#pragma once
// bf16 epilogue overlapped with the next tile's mainloop: a consumer warp packs its 16x256 accumulators to bf16 (64
// registers), then after each of the next tile's first stages stores a 64-column slice by TMA. Only the packing stalls
// the tensor cores.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm90/pipeline.cuh"
#include "core/cuda/sm90/tensor_map.h"

namespace quench::cuda {

// 16 rows x 64 columns, double-buffered.
inline constexpr int kSliceRows = 16, kSliceColumns = kSwizzleBytes / sizeof(bfloat16), kSliceBuffers = 2;
inline constexpr int kTileSlices = kTileN / kSliceColumns;
inline constexpr std::uint32_t kSliceBytes = kSliceRows * kSwizzleBytes,
                               kSliceStorageBytes = kConsumerWarps * kSliceBuffers * kSliceBytes;
static_assert(smem_bytes(kSliceStorageBytes) <= 227 * 1024);

// Buffers of the calling warp.
__device__ inline std::uint32_t epilogue_smem(const SharedStorage& shared) {
  return shared.out + (threadIdx.x / 32 - 4) * kSliceBuffers * kSliceBytes;
}

// kCount: store steps.
template <int kCount = kTileSlices>
struct OverlappedEpilogue {
  static constexpr int kSlicePairs = 16;
  std::uint32_t pairs[kTileSlices * kSlicePairs];  // fragment layout: wgmma.cuh
  int next = kCount;                               // next slice
  int row = 0, column = 0, end = 0;                // in C: first row, first column, end of the rows

  // pair(i): accumulators 2 i and 2 i + 1. first_row: in C.
  template <class Pair>
  __device__ __forceinline__ void pack(const WorkTile& work, std::int64_t first_row, const Pair& pair) {
#pragma unroll
    for (int i = 0; i < kTileSlices * kSlicePairs; ++i) {
      const float2 both = pair(i);
      pairs[i] = pack_pair<bfloat16>(both.x, both.y);
    }
    next = 0;
    row = static_cast<int>(first_row + work.row) + static_cast<int>(threadIdx.x / 32 - 4) * kSliceRows;
    column = static_cast<int>(work.column);
    end = static_cast<int>(first_row + work.end);
  }
  [[nodiscard]] __device__ bool pending() const {
    return next < kCount;
  }
  // Calls store(slice); slice is constant after unrolling (register indexing).
  template <class Store>
  __device__ __forceinline__ void step(const Store& store) {
    const int slice = next++;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i == slice) store(i);
  }
  template <class Store>
  __device__ __forceinline__ void drain(const Store& store) {
    while (pending()) step(store);
  }
};

template <class Pair, class Store>
__device__ __forceinline__ void tma_store_slice(const SharedStorage& shared, int slice, const Pair& pair,
                                                const Store& store) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t to = epilogue_smem(shared) + static_cast<std::uint32_t>(slice % kSliceBuffers) * kSliceBytes;
  const std::uint32_t line = to + (lane % 8 + lane / 8 % 2 * 8) * kSwizzleBytes;
  if (lane == 0) tma_store_wait_read<kSliceBuffers - 1>();
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kSliceColumns / 8; j += 2) {
    const std::uint32_t chunk = (static_cast<std::uint32_t>(j) + lane / 16) ^ lane % 8;  // 128-byte swizzle
    stmatrix_x4(line + chunk * 16, pair(2 * j), pair(2 * j + 1), pair(2 * j + 2), pair(2 * j + 3));
  }
  fence_proxy_async();
  __syncwarp();
  store(to);
  if (lane == 0) tma_store_commit();
}

// [R,N] by row groups, or [E,M,N].
struct GroupedOutput {
  CUtensorMap map;  // C as a matrix
  bfloat16* c;
  std::int64_t columns;
  std::int64_t group_rows;  // rows per matrix; 0: row groups
};
[[nodiscard]] inline GroupedOutput grouped_output(const Tensor& c) {
  const std::int64_t columns = c.size(-1);
  return {make_tensor_map(c.view({c.numel() / columns, columns}), kSliceRows, kSliceColumns), c.data<bfloat16>(),
          columns, c.rank() == 3 ? c.size(1) : 0};
}

// TMA for full slices; thread stores for partial ones, which precede the next group's rows.
template <int kCount>
__device__ __forceinline__ void store_output_slice(const SharedStorage& shared, const OverlappedEpilogue<kCount>& tile,
                                                   int slice, const GroupedOutput& results) {
  const auto pair = [&](int at) { return tile.pairs[slice * tile.kSlicePairs + at]; };
  tma_store_slice(shared, slice, pair, [&](std::uint32_t from) {
    const int lane = static_cast<int>(threadIdx.x) % 32, rows = tile.end - tile.row,
              column = tile.column + slice * kSliceColumns;
    if (rows >= kSliceRows) {
      if (lane == 0) tma_store(&results.map, from, column, tile.row);
      return;
    }
    bfloat16* to = results.c + std::int64_t{tile.row} * results.columns + column;
#pragma unroll 1
    for (int i = lane; i < rows * 8; i += 32) {
      const int row = i / 8, chunk = i % 8;
      uint4 words;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                   : "r"(from + static_cast<std::uint32_t>(row) * kSwizzleBytes +
                         static_cast<std::uint32_t>(chunk ^ row % 8) * 16)
                   : "memory");
      if (column + 8 * chunk < results.columns)
        *reinterpret_cast<uint4*>(to + row * results.columns + 8 * chunk) = words;
    }
  });
}

// compute(work, overlap, last) runs a mainloop, pair(i) yields its accumulators.
template <GemmKind kKind, int kCluster, class Mainloop, class Pair>
__device__ __forceinline__ void overlapped_consumer_loop(const SharedStorage& shared, const GroupedOutput& results,
                                                         const std::int32_t* ends, const ProblemShape& s,
                                                         std::uint32_t rank, const Mainloop& compute,
                                                         const Pair& pair) {
  OverlappedEpilogue<> epilogue;
  const auto store = [&](int slice) { store_output_slice(shared, epilogue, slice, results); };
  int tile = static_cast<int>(blockIdx.x) / kCluster;
  WorkTile work = work_tile<kKind, kCluster>(ends, s, tile, rank), next;
  while (work.group >= 0) {
    compute(
        work,
        [&] {
          if (epilogue.pending()) epilogue.step(store);
        },
        [&] {
          tile += static_cast<int>(gridDim.x) / kCluster;
          next = work_tile<kKind, kCluster>(ends, s, tile, rank);
          epilogue.drain(store);
        });
    epilogue.pack(work, work.group * results.group_rows, pair);
    work = next;
  }
  epilogue.drain(store);
  if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();
}

}  // namespace quench::cuda
