// Block scales in 128 x 4 tiles.

#include "core/ops/quantize/blocked_scales.h"

#include "core/cuda/quantize/quantize_common.cuh"
#include "core/number/blocked_scale.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileWords = kScaleTileBytes / 4;

// Four scales of a row, one word of a tile, per thread.
__global__ __launch_bounds__(kThreads) void to_blocked_kernel(const std::uint8_t* from, std::uint32_t* to,
                                                              std::int64_t rows, std::int64_t columns,
                                                              std::int64_t words, bool wide) {
  const std::int64_t tile_columns = scale_tiles(columns, kScaleTileColumns);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t w = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; w < words; w += stride) {
    const std::int64_t tile = w / kTileWords;
    const int word = static_cast<int>(w % kTileWords);
    const std::int64_t row = tile / tile_columns * kScaleTileRows + word % 4 * kScaleTileStripe + word / 4,
                       column = tile % tile_columns * kScaleTileColumns;
    std::uint32_t scales = 0;
    if (row < rows) {
      const std::uint8_t* at = from + row * columns + column;
      if (wide) {
        scales = *reinterpret_cast<const std::uint32_t*>(at);
      } else {
#pragma unroll
        for (int i = 0; i < kScaleTileColumns; ++i)
          if (column + i < columns) scales |= std::uint32_t{at[i]} << (8 * i);
      }
    }
    to[w] = scales;
  }
}

void to_blocked_cuda(const BlockedScalesArgs& args) {
  const OpLaunch launch("to_blocked", {&args.scales, &args.blocked});
  const std::int64_t rows = args.scales.size(0), columns = args.scales.size(1), words = args.blocked.numel() / 4;
  const std::uint8_t* from = bytes_of(args.scales);
  std::uint8_t* to = bytes_of(args.blocked);
  QUENCH_CHECK(aligned(to), "to_blocked: {} does not begin at a multiple of 16 bytes", args.blocked.describe());
  launch(to_blocked_kernel, dim3(strided_grid(launch.device(), words, kThreads)), kThreads, 0, from,
         reinterpret_cast<std::uint32_t*>(to), rows, columns, words,
         columns % kScaleTileColumns == 0 && aligned(from, 4));
}

QUENCH_CUDA_KERNEL(to_blocked_slot, to_blocked_cuda);

}  // namespace
}  // namespace quench::cuda
