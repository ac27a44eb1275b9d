#pragma once
// wgmma mainloop of the SM90 GEMMs.

#include "core/cuda/sm90/pipeline.cuh"

namespace quench::cuda {

// Accumulators, f32 or (int8) s32, of the warpgroup's 64 rows (fragment layout: wgmma.cuh). One wgmma group in flight:
// a stage is released once the next is issued. Calls overlap() after issuing each stage and last() after the final one,
// during wgmma.
template <GemmKind kKind, class Operand, int kCluster, class Accumulator, class Overlap, class Last>
__device__ __forceinline__ void mainloop(Accumulator (&acc)[128], PipelineState& pipe, const SharedStorage& shared,
                                         const WorkTile& work, const Overlap& overlap, const Last& last) {
  using Layout = OperandLayout<kKind, Operand>;
  constexpr int kInstructions = Layout::kTileK / Layout::kInstructionK;
  const int half = static_cast<int>(threadIdx.x) / 128 - 1;
  define_accumulators(acc);
  if (work.k_extent == 0) {
#pragma unroll
    for (int i = 0; i < 128; ++i) acc[i] = Accumulator{0};
  }
  int previous = -1;
  for (std::int64_t k = 0; k < work.k_extent; k += Layout::kTileK) {
    mbarrier_wait(shared.full(pipe.stage), pipe.phase);
    const std::uint32_t a = shared.a(pipe.stage) + static_cast<std::uint32_t>(half) * kBoxBytes;
    const std::uint32_t b = shared.b(pipe.stage);
    const auto mma = [&](int i) {
      const std::uint64_t a_part = smem_descriptor(a + static_cast<std::uint32_t>(i) * Layout::kStepA, kBoxBytes);
      const std::uint64_t b_part = smem_descriptor(b + static_cast<std::uint32_t>(i) * Layout::kStepB, kBoxBytes);
      if constexpr (Layout::kInt8)
        wgmma_m64n256k32_int8(acc, a_part, b_part, k > 0 || i > 0);
      else if constexpr (Layout::kBytes)
        wgmma_m64k32_e4m3(acc, a_part, b_part, k > 0 || i > 0);
      else
        wgmma_m64n256k16_bf16<Layout::kMnMajorA, Layout::kMnMajorB>(acc, a_part, b_part, k > 0 || i > 0);
    };
    if (kKind != GemmKind::wgrad || k + Layout::kTileK <= work.k_extent) {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kInstructions; ++i) mma(i);
      wgmma_commit();
      overlap();
      wgmma_wait<1>();
    } else {
      // Groups are multiples of kInstructionK; the rest of the box is the next group's.
      for (int i = 0; k + Layout::kInstructionK * i < work.k_extent; ++i) {
        wgmma_fence();
        mma(i);
        wgmma_commit();
        wgmma_wait<0>();
      }
    }
    if (previous >= 0) consumer_release<kCluster>(shared, previous);
    previous = pipe.stage;
    pipe.advance();
  }
  last();
  wgmma_wait<0>();
  wgmma_fence_operand(acc);
  if (previous >= 0) consumer_release<kCluster>(shared, previous);
}
template <GemmKind kKind, class Operand, int kCluster, class Accumulator>
__device__ __forceinline__ void mainloop(Accumulator (&acc)[128], PipelineState& pipe, const SharedStorage& shared,
                                         const WorkTile& work) {
  mainloop<kKind, Operand, kCluster>(
      acc, pipe, shared, work, [] {}, [] {});
}

}  // namespace quench::cuda
