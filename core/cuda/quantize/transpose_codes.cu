// Byte transpose, with the tiles of the float8 casts.

#include "core/ops/quantize/transpose_codes.h"

#include "core/cuda/quantize/code_tiles.cuh"

namespace quench::cuda {
namespace {

// Eight values of a row, or `count` and zeros.
template <bool kWide>
__device__ uint2 load_codes(const std::uint8_t* from, int count) {
  if constexpr (kWide) return *reinterpret_cast<const uint2*>(from);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < kPiece; ++i)
    if (i < count) words[i / 4] |= std::uint32_t{from[i]} << (i % 4 * 8);
  return make_uint2(words[0], words[1]);
}

// kWide: 8 bytes of a row and 16 of a column per access.
template <bool kWide>
__global__ __launch_bounds__(kCodeThreads) void transpose_codes_kernel(const std::uint8_t* from, std::uint8_t* to,
                                                                       MatrixBatch shape, CodeTiles grid) {
  __shared__ CodeUnits units;
  const auto [batch, tile_row, tile_column] = grid(blockIdx.x);
  const std::int64_t row = tile_row + static_cast<int>(threadIdx.x) / kTileParts * kPiece,
                     column = tile_column + static_cast<int>(threadIdx.x) % kTileParts * kPiece;
  const int rows = clamped(shape.rows - row, kPiece), columns = clamped(shape.columns - column, kPiece);
  uint2 codes[kPiece] = {};
  if (columns > 0) {
#pragma unroll
    for (int r = 0; r < kPiece; ++r)
      if (r < rows) codes[r] = load_codes<kWide>(from + (row + r) * shape.columns + column, columns);
  }
  store_transposed<kWide>(codes, units, to, shape, tile_row, tile_column);
}

void transpose_codes_cuda(const TransposeCodesArgs& args) {
  const OpLaunch launch("transpose_codes", {&args.from, &args.to});
  const MatrixBatch shape(args.from.shape());
  const CodeTiles grid(shape);
  const std::uint8_t* from = bytes_of(args.from);
  std::uint8_t* to = bytes_of(args.to);
  const bool wide = aligned(from, 8) && aligned(to) && shape.columns % kPiece == 0 && shape.rows % 16 == 0;
  launch(wide ? transpose_codes_kernel<true> : transpose_codes_kernel<false>, dim3(grid.rows * grid.columns),
         kCodeThreads, 0, from, to, shape, grid);
}

QUENCH_CUDA_KERNEL(transpose_codes_slot, transpose_codes_cuda);

}  // namespace
}  // namespace quench::cuda
