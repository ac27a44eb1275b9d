#pragma once
// SwiGLU's backward pass behind a product whose result is the gradient of SwiGLU's output: the gradients of gate and up
// are stored instead of the result, beside the products of the next tile. Each warp fetches gate and up of its part of
// the tile into its boxes of shared memory (leaving_tile.cuh), overwrites them there with their gradients and stores
// those.

#include "core/cuda/common/mma.cuh"
#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/tiles/leaving_tile.cuh"

namespace quench::cuda {

// A box of results takes this many stages of the next tile: its gates are fetched in one of them and expected, in
// quarters of 16 columns each, in the last four.
inline constexpr int kGradientSteps = 8, kFetchStep = 1, kQuarters = 4, kFirstQuarter = kGradientSteps - kQuarters;
using LeavingGradient = LeavingTile<kTileBoxes * kGradientSteps>;

// Matrices [M, 2 width].
struct GradientResults {
  CUtensorMap gate_up, dgate_up;
  int width;
};

// The gradients of two neighbours of gate (`gate` becomes it) and up, rounded as swiglu_backward() rounds them.
__device__ __forceinline__ void to_gradient(std::uint32_t d, std::uint32_t& gate, std::uint32_t& up) {
  const float2 of_result = unpack_pair<bfloat16>(d), g = unpack_pair<bfloat16>(gate), u = unpack_pair<bfloat16>(up);
  const SwigluGradient<2> gradient = swiglu_gradient(Vector<float, 2>{of_result.x, of_result.y},
                                                     Vector<float, 2>{g.x, g.y}, Vector<float, 2>{u.x, u.y});
  gate = pack_pair<bfloat16>(gradient.dgate.values[0], gradient.dgate.values[1]);
  up = pack_pair<bfloat16>(gradient.dup.values[0], gradient.dup.values[1]);
}

// to = from, if `condition`. In assembly, because the compiler would turn selections in C++ into one load by a variable
// index, and so put the tile's registers into local memory.
__device__ __forceinline__ void take_if(bool condition, const std::uint32_t* from, std::uint32_t (&to)[4]) {
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

// The next step of the calling warp. `phases` counts the fetches that it has waited for.
__device__ __forceinline__ void leave_gradient(const TileMemory& shared, LeavingGradient& tile, std::uint32_t& phases,
                                               const GradientResults& results) {
  const int step = tile.next++, box = step / kGradientSteps, part = step % kGradientSteps;
  const int column = tile.column + box * kBoxColumns;
  if (column >= results.width) return;
  const std::uint32_t lane = threadIdx.x % 32, gates = out_boxes(shared), ups = gates + kOutBoxBytes;
  if (part == kFetchStep && lane == 0) {
    wait_boxes_read<0>();
    arrive_expecting(shared.fetched(), kBoxes * kOutBoxBytes);
    copy_box(gates, &results.gate_up, shared.fetched(), column, tile.row);
    copy_box(ups, &results.gate_up, shared.fetched(), column + results.width, tile.row);
  }
  if (part < kFirstQuarter) return;
  if (part == kFirstQuarter) wait_barrier(shared.fetched(), phases++ & 1);
  const int quarter = part - kFirstQuarter;
  std::uint32_t d[4] = {}, gate[4], up[4];
#pragma unroll
  for (int i = 0; i < kTileBoxes * kQuarters; ++i) take_if(i == box * kQuarters + quarter, &tile.pairs[4 * i], d);
  const std::uint32_t piece = (2 * static_cast<std::uint32_t>(quarter) + lane / 16) ^ lane % 8;  // 128-byte swizzle
  const std::uint32_t at = (lane % 8 + lane / 8 % 2 * 8) * kLineBytes + piece * 16;
  load_matrices(gate, gates + at);
  load_matrices(up, ups + at);
#pragma unroll
  for (int j = 0; j < 4; ++j) to_gradient(d[j], gate[j], up[j]);
  store_matrices(gates + at, gate[0], gate[1], gate[2], gate[3]);
  store_matrices(ups + at, up[0], up[1], up[2], up[3]);
  if (quarter < kQuarters - 1) return;
  fence_for_copies();
  __syncwarp();
  if (lane != 0) return;
  store_box(&results.dgate_up, gates, column, tile.row);
  store_box(&results.dgate_up, ups, column + results.width, tile.row);
  commit_boxes();
}

}  // namespace quench::cuda
