#pragma once
// Results of bf16 that leave beside the products of the tile after them (tile_pipeline.cuh): a warp packs its 16 x 256
// sums into half as many registers, goes on to the next tile, and behind each of its first stages copies 64 columns
// away. The tensor cores wait for the packing alone.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/tiles/tensor_map.h"
#include "core/cuda/tiles/tile_pipeline.cuh"

namespace quench::cuda {

// A box: of results, that a warp copies away at a time; shared memory has two a warp.
inline constexpr int kBoxRows = 16, kBoxColumns = kLineBytes / sizeof(bfloat16), kBoxes = 2;
inline constexpr int kTileBoxes = kTileColumns / kBoxColumns;
inline constexpr std::uint32_t kOutBoxBytes = kBoxRows * kLineBytes,
                               kOutBoxesBytes = kConsumerWarps * kBoxes * kOutBoxBytes;
static_assert(tile_shared_bytes(kOutBoxesBytes) <= 227 * 1024);

// Those of the calling warp.
__device__ inline std::uint32_t out_boxes(const TileMemory& shared) {
  return shared.out + (threadIdx.x / 32 - 4) * kBoxes * kOutBoxBytes;
}

// kCount boxes: those of the tile, and what is made of them.
template <int kCount = kTileBoxes>
struct LeavingTile {
  static constexpr int kBoxPairs = 16;
  std::uint32_t pairs[kTileBoxes * kBoxPairs];  // as sums lie (wgmma.cuh)
  int next = kCount;                            // box to be sent
  int row = 0, column = 0, end = 0;             // first row of the warp and first column in C; end of the tile's rows

  // pair(i): of sums 2 i and 2 i + 1. first_row: where in C the rows of `work` begin.
  template <class Pair>
  __device__ __forceinline__ void take(const TileWork& work, std::int64_t first_row, const Pair& pair) {
#pragma unroll
    for (int i = 0; i < kTileBoxes * kBoxPairs; ++i) {
      const float2 both = pair(i);
      pairs[i] = pack_pair<bfloat16>(both.x, both.y);
    }
    next = 0;
    row = static_cast<int>(first_row + work.row) + static_cast<int>(threadIdx.x / 32 - 4) * kBoxRows;
    column = static_cast<int>(work.column);
    end = static_cast<int>(first_row + work.end);
  }
  [[nodiscard]] __device__ bool is_left() const {
    return next < kCount;
  }
  // Calls send(box) for the next one: a constant, once loops are unrolled, as numbers of registers have to be.
  template <class Send>
  __device__ __forceinline__ void send_next(const Send& send) {
    const int box = next++;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i == box) send(i);
  }
  template <class Send>
  __device__ __forceinline__ void send_rest(const Send& send) {
    while (is_left()) send_next(send);
  }
};

// Fills the box of shared memory whose turn it is with pair(i), as pairs lie, and calls leave(address) in all lanes.
template <class Pair, class Leave>
__device__ __forceinline__ void send_box(const TileMemory& shared, int box, const Pair& pair, const Leave& leave) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t to = out_boxes(shared) + static_cast<std::uint32_t>(box % kBoxes) * kOutBoxBytes;
  const std::uint32_t line = to + (lane % 8 + lane / 8 % 2 * 8) * kLineBytes;
  if (lane == 0) wait_boxes_read<kBoxes - 1>();
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kBoxColumns / 8; j += 2) {
    const std::uint32_t piece = (static_cast<std::uint32_t>(j) + lane / 16) ^ lane % 8;  // the 128-byte swizzle
    store_matrices(line + piece * 16, pair(2 * j), pair(2 * j + 1), pair(2 * j + 2), pair(2 * j + 3));
  }
  fence_for_copies();
  __syncwarp();
  leave(to);
  if (lane == 0) commit_boxes();
}

// Results of groups of rows, or of a matrix for each group.
struct GroupResults {
  CUtensorMap boxes;  // of C, a matrix
  bfloat16* c;
  std::int64_t columns;
  std::int64_t group_rows;  // of a group's matrix; 0: groups are rows of one
};
// C: [R,N], or [E,M,N].
[[nodiscard]] inline GroupResults group_results(const Tensor& c) {
  const std::int64_t columns = c.size(-1);
  return {make_tensor_map(c.view({c.numel() / columns, columns}), kBoxRows, kBoxColumns), c.data<bfloat16>(), columns,
          c.rank() == 3 ? c.size(1) : 0};
}

// Rows behind the tile's end are another group's.
template <int kCount>
__device__ __forceinline__ void send_results(const TileMemory& shared, const LeavingTile<kCount>& tile, int box,
                                             const GroupResults& results) {
  const auto pair = [&](int at) { return tile.pairs[box * tile.kBoxPairs + at]; };
  send_box(shared, box, pair, [&](std::uint32_t from) {
    const int lane = static_cast<int>(threadIdx.x) % 32, rows = tile.end - tile.row,
              column = tile.column + box * kBoxColumns;
    if (rows >= kBoxRows) {
      if (lane == 0) store_box(&results.boxes, from, column, tile.row);
      return;
    }
    bfloat16* to = results.c + std::int64_t{tile.row} * results.columns + column;
#pragma unroll 1
    for (int i = lane; i < rows * 8; i += 32) {
      const int row = i / 8, piece = i % 8;
      uint4 words;
      asm volatile(
          "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
          : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
          : "r"(from + static_cast<std::uint32_t>(row) * kLineBytes + static_cast<std::uint32_t>(piece ^ row % 8) * 16)
          : "memory");
      if (column + 8 * piece < results.columns)
        *reinterpret_cast<uint4*>(to + row * results.columns + 8 * piece) = words;
    }
  });
}

// A warp's part of the tiles of a kernel: sum(work, beside, last) sums a tile, calling beside() while the products of a
// stage run and last() while those of the last one do, and pair(i) is what take() asks for.
template <Product kProduct, int kCluster, class Sum, class Pair>
__device__ __forceinline__ void multiply_leaving(const TileMemory& shared, const GroupResults& results,
                                                 const std::int32_t* ends, const TileShape& s, std::uint32_t rank,
                                                 const Sum& sum, const Pair& pair) {
  LeavingTile<> leaving;
  const auto send = [&](int box) { send_results(shared, leaving, box, results); };
  int tile = static_cast<int>(blockIdx.x) / kCluster;
  TileWork work = find_work<kProduct, kCluster>(ends, s, tile, rank), next;
  while (work.group >= 0) {
    sum(
        work,
        [&] {
          if (leaving.is_left()) leaving.send_next(send);
        },
        [&] {
          tile += static_cast<int>(gridDim.x) / kCluster;
          next = find_work<kProduct, kCluster>(ends, s, tile, rank);
          leaving.send_rest(send);
        });
    leaving.take(work, work.group * results.group_rows, pair);
    work = next;
  }
  leaving.send_rest(send);
  if (threadIdx.x % 32 == 0) wait_boxes_read<0>();
}

}  // namespace quench::cuda
