#pragma once
// dgrad epilogue with the fused backward of a gated unit, overlapped with the next mainloop: stores d_gate and d_up
// instead of d_out. A warp loads gate and up of its slice by TMA and overwrites them.

#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/sm80/mma.cuh"
#include "core/cuda/sm90/overlapped_epilogue.cuh"

namespace quench::cuda {

// Per slice: load at kFetchStep; the last four stages compute 16 columns each.
inline constexpr int kSliceSteps = 8, kFetchStep = 1, kQuarters = 4, kFirstQuarter = kSliceSteps - kQuarters;
using SwigluBackwardEpilogue = OverlappedEpilogue<kTileSlices * kSliceSteps>;

// [M, 2 width], gate first.
struct SwigluGradientOutput {
  CUtensorMap gate_up, dgate_up;
  int width;
};

// Two adjacent elements, in place; rounds as swiglu_backward().
template <GatedActivation kActivation>
__device__ __forceinline__ void swiglu_gradient_pair(std::uint32_t d, std::uint32_t& gate, std::uint32_t& up) {
  const float2 of_result = unpack_pair<bfloat16>(d), g = unpack_pair<bfloat16>(gate), u = unpack_pair<bfloat16>(up);
  const SwigluGradient<2> gradient = swiglu_gradient<kActivation>(
      Vector<float, 2>{of_result.x, of_result.y}, Vector<float, 2>{g.x, g.y}, Vector<float, 2>{u.x, u.y});
  gate = pack_pair<bfloat16>(gradient.dgate.values[0], gradient.dgate.values[1]);
  up = pack_pair<bfloat16>(gradient.dup.values[0], gradient.dup.values[1]);
}

// Predicated moves: a C++ select spills the tile to local memory.
__device__ __forceinline__ void select_if(bool condition, const std::uint32_t* from, std::uint32_t (&to)[4]) {
  asm("{\n"
      ".reg .pred is;\n"
      "setp.ne.s32 is, %8, 0;\n"
      "@is mov.b32 %0, %4;\n"
      "@is mov.b32 %1, %5;\n"
      "@is mov.b32 %2, %6;\n"
      "@is mov.b32 %3, %7;\n"
      "}\n"
      : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
      : "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(static_cast<int>(condition)));
}

// `phases`: completed load waits.
template <GatedActivation kActivation>
__device__ __forceinline__ void swiglu_backward_step(const SharedStorage& shared, SwigluBackwardEpilogue& tile,
                                                     std::uint32_t& phases, const SwigluGradientOutput& results) {
  const int step = tile.next++, box = step / kSliceSteps, part = step % kSliceSteps;
  const int column = tile.column + box * kSliceColumns;
  if (column >= results.width) return;
  const std::uint32_t lane = threadIdx.x % 32, gates = epilogue_smem(shared), ups = gates + kSliceBytes;
  if (part == kFetchStep && lane == 0) {
    tma_store_wait_read<0>();
    mbarrier_arrive_expect_tx(shared.fetched(), kSliceBuffers * kSliceBytes);
    tma_load(gates, &results.gate_up, shared.fetched(), column, tile.row);
    tma_load(ups, &results.gate_up, shared.fetched(), column + results.width, tile.row);
  }
  if (part < kFirstQuarter) return;
  if (part == kFirstQuarter) mbarrier_wait(shared.fetched(), phases++ & 1);
  const int quarter = part - kFirstQuarter;
  std::uint32_t d[4] = {}, gate[4], up[4];
#pragma unroll
  for (int i = 0; i < kTileSlices * kQuarters; ++i) select_if(i == box * kQuarters + quarter, &tile.pairs[4 * i], d);
  const std::uint32_t chunk = (2 * static_cast<std::uint32_t>(quarter) + lane / 16) ^ lane % 8;  // 128-byte swizzle
  const std::uint32_t at = (lane % 8 + lane / 8 % 2 * 8) * kSwizzleBytes + chunk * 16;
  ldmatrix_x4(gate, gates + at);
  ldmatrix_x4(up, ups + at);
#pragma unroll
  for (int j = 0; j < 4; ++j) swiglu_gradient_pair<kActivation>(d[j], gate[j], up[j]);
  stmatrix_x4(gates + at, gate[0], gate[1], gate[2], gate[3]);
  stmatrix_x4(ups + at, up[0], up[1], up[2], up[3]);
  if (quarter < kQuarters - 1) return;
  fence_proxy_async();
  __syncwarp();
  if (lane != 0) return;
  tma_store(&results.dgate_up, gates, column, tile.row);
  tma_store(&results.dgate_up, ups, column + results.width, tile.row);
  tma_store_commit();
}

}  // namespace quench::cuda
