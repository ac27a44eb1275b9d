#pragma once
// The loop over a tile's contraction for operands of bf16, with f32 sums in registers.

#include "core/cuda/tiles/tile_pipeline.cuh"

namespace quench::cuda {

// A warp group's sums of the tile, half of its rows (wgmma.cuh says whose), from the stages that the producer fills.
// Calls beside() while the products of a stage run, and last() while those of the last one do.
template <Product kProduct, int kCluster, class Beside, class Last>
__device__ __forceinline__ void sum_tile(float (&sums)[128], TileRing& ring, const TileMemory& shared,
                                         const TileWork& work, const Beside& beside, const Last& last) {
  using Layout = TileLayout<kProduct, bfloat16>;
  constexpr int kSlices = Layout::kDepth / Layout::kSlice;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
  if (work.depth == 0) {
#pragma unroll
    for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  }
  int previous = -1;
  for (std::int64_t k = 0; k < work.depth; k += Layout::kDepth) {
    wait_barrier(shared.full(ring.stage), ring.parity);
    const std::uint32_t a = shared.left(ring.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
    const std::uint32_t b = shared.right(ring.stage);
    const auto multiply = [&](int i) {
      multiply_bf16<Layout::kOuterLeft, Layout::kOuterRight>(
          sums, matrix_descriptor(a + static_cast<std::uint32_t>(i) * Layout::kLeftStep, kBoxBytes),
          matrix_descriptor(b + static_cast<std::uint32_t>(i) * Layout::kRightStep, kBoxBytes), k > 0 || i > 0);
    };
    if (kProduct != Product::wgrad || k + Layout::kDepth <= work.depth) {
      begin_products();
#pragma unroll
      for (int i = 0; i < kSlices; ++i) multiply(i);
      commit_products();
      beside();
      wait_products<1>();
    } else {
      // Groups of rows are multiples of a slice: what follows in the box is another group's.
      for (int i = 0; k + Layout::kSlice * i < work.depth; ++i) {
        begin_products();
        multiply(i);
        commit_products();
        wait_products<0>();
      }
    }
    if (previous >= 0) release_stage<kCluster>(shared, previous);
    previous = ring.stage;
    ring.advance();
  }
  last();
  wait_products<0>();
  settle(sums);
  if (previous >= 0) release_stage<kCluster>(shared, previous);
}
template <Product kProduct, int kCluster>
__device__ __forceinline__ void sum_tile(float (&sums)[128], TileRing& ring, const TileMemory& shared,
                                         const TileWork& work) {
  sum_tile<kProduct, kCluster>(
      sums, ring, shared, work, [] {}, [] {});
}

}  // namespace quench::cuda
