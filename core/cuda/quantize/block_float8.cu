// Block-scaled float8 casts. One CTA per 128x128 tile, 8x8 elements per thread.

#include "core/cuda/quantize/code_tiles.cuh"
#include "core/ops/quantize/block_float8.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = kCodeThreads, kTile = kCodeTile;
static_assert(kTile == kFloat8Block);

// Over 16 adjacent lanes.
__device__ std::uint32_t largest_of_half(std::uint32_t most) {
#pragma unroll
  for (int offset = 1; offset < kTileParts; offset *= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
  return most;
}

// For eight rows or columns; `most`: amax, eight words per tile line.
__device__ Piece multipliers(const std::uint32_t (&most)[kPiece]) {
  Piece result;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) result[i] = float8_scale(__uint_as_float(most[i]), E4m3::kMax, false);
  return result;
}

__device__ void store_reciprocals(float* to, const Piece& scale, int count) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i)
    if (i < count) to[i] = __frcp_rn(scale[i]);
}

// Whole blocks of rows (kTransposed: columns); `blocks` per row, `row_blocks` per column of x.
template <class T, bool kSquares, bool kTransposed>
__global__ __launch_bounds__(kThreads) void cast_block_kernel(const T* x, std::uint8_t* codes, float* scales,
                                                              MatrixBatch shape, CodeTiles grid, std::int64_t blocks,
                                                              std::int64_t row_blocks, bool wide) {
  __shared__ CodeUnits units;
  __shared__ std::uint32_t shared_most[kThreads / 32][kTile];
  const auto [batch, tile_row, tile_column] = grid(blockIdx.x);
  const int part_column = static_cast<int>(threadIdx.x) % kTileParts,
            part_row = static_cast<int>(threadIdx.x) / kTileParts, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t row = tile_row + part_row * kPiece, column = tile_column + part_column * kPiece;
  const int rows = clamped(shape.rows - row, kPiece), columns = clamped(shape.columns - column, kPiece);
  PackedPiece<T> stored[kPiece] = {};
#pragma unroll
  for (int r = 0; r < kPiece; ++r)
    if (r < rows && columns > 0)
      stored[r] = load_packed_piece(x + (batch * shape.rows + row + r) * shape.columns + column, wide, columns);

  std::uint32_t most[kPiece] = {};
#pragma unroll
  for (int r = 0; r < kPiece; ++r) {
    const Piece values = unpack(stored[r]);
#pragma unroll
    for (int c = 0; c < kPiece; ++c) {
      const int line = kTransposed ? c : r;
      most[line] = max(most[line], magnitude(values[c]));
    }
  }
  if constexpr (kSquares) {
    std::uint32_t all = 0;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) all = max(all, most[i]);
    all = largest_of_half(all);
    shared_most[0][part_row] = all;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTileParts; ++i) all = max(all, shared_most[0][i]);
#pragma unroll
    for (std::uint32_t& of_line : most) of_line = all;
  } else if constexpr (kTransposed) {
#pragma unroll
    for (int c = 0; c < kPiece; ++c) {
      most[c] = max(most[c], __shfl_xor_sync(0xFFFFFFFFu, most[c], kTileParts));
      shared_most[warp][part_column * kPiece + c] = most[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kPiece; ++c)
#pragma unroll
      for (int w = 0; w < kThreads / 32; ++w) most[c] = max(most[c], shared_most[w][part_column * kPiece + c]);
  } else {
#pragma unroll
    for (std::uint32_t& of_line : most) of_line = largest_of_half(of_line);
  }

  const Piece by = multipliers(most);
  const std::int64_t block = tile_column / kTile, row_block = tile_row / kTile;
  if constexpr (kSquares) {
    const std::int64_t at = kTransposed ? (batch * blocks + block) * row_blocks + row_block
                                        : (batch * row_blocks + row_block) * blocks + block;
    if (threadIdx.x == 0) scales[at] = __frcp_rn(by[0]);
  } else if constexpr (kTransposed) {
    if (part_row == 0) store_reciprocals(scales + row_block * shape.columns + column, by, columns);
  } else {
    if (part_column == 0) store_reciprocals(scales + block * shape.rows + row, by, rows);
  }

  uint2 rounded[kPiece];
#pragma unroll
  for (int r = 0; r < kPiece; ++r)
    rounded[r] = kTransposed ? encode_piece<E4m3>(unpack(stored[r]), by) : encode_piece<E4m3>(unpack(stored[r]), by[r]);
  if constexpr (kTransposed) {
    MatrixBatch whole = shape;
    whole.rows = row_blocks * kTile;
    store_transposed<true>(rounded, units, codes + batch * shape.columns * whole.rows, whole, tile_row, tile_column);
  } else {
#pragma unroll
    for (int r = 0; r < kPiece; ++r)
      if (r < rows)
        *reinterpret_cast<uint2*>(codes + (batch * shape.rows + row + r) * blocks * kTile + column) = rounded[r];
  }
}

void block_float8_cast_cuda(const BlockFloat8CastArgs& args) {
  const OpLaunch launch("block_float8_cast", {&args.x, &args.out.codes, &args.out.scales});
  QUENCH_CHECK(aligned(args.out.codes.raw_data()), "block_float8_cast: codes do not begin at a multiple of 16 bytes");
  const MatrixBatch shape(args.x.shape());
  const CodeTiles grid(shape);
  const bool transposed = args.orientation == Orientation::transposed;
  dispatch<float, bfloat16>(args.x.dtype(), "block_float8_cast", [&]<class T>() {
    const auto kernel = args.squares
                            ? (transposed ? cast_block_kernel<T, true, true> : cast_block_kernel<T, true, false>)
                            : (transposed ? cast_block_kernel<T, false, true> : cast_block_kernel<T, false, false>);
    const T* x = args.x.data<T>();
    launch(kernel, dim3(static_cast<unsigned>(shape.batch) * grid.rows * grid.columns), kThreads, 0, x,
           bytes_of(args.out.codes), args.out.scales.data<float>(), shape, grid, float8_blocks(shape.columns),
           float8_blocks(shape.rows), aligned(x) && shape.columns % kPiece == 0);
  });
}

struct LineLayout {
  std::int64_t lines, length;  // per matrix, elements per line
  bool natural;
  LineLayout(const Shape& shape, Orientation orientation)
      : lines(shape[-2]), length(shape[-1]), natural(orientation == Orientation::natural) {
    if (!natural) std::swap(lines, length);
  }
};

// One thread per element.
__global__ __launch_bounds__(kThreads) void values_kernel(const std::uint8_t* codes, const float* scales, float* out,
                                                          LineLayout at, std::int64_t blocks, std::int64_t line_blocks,
                                                          bool squares, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads, of_matrix = at.lines * at.length;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t matrix = i / of_matrix, rest = i % of_matrix;
    const std::int64_t row = at.natural ? at.length : at.lines;  // row length of out
    const std::int64_t line = at.natural ? rest / row : rest % row, k = at.natural ? rest % row : rest / row;
    const float scale = squares ? scales[(matrix * line_blocks + line / kTile) * blocks + k / kTile]
                                : scales[k / kTile * at.lines + line];
    out[i] = E4m3::decode(codes[(matrix * at.lines + line) * blocks * kTile + k]) * scale;
  }
}

void block_float8_values_cuda(const BlockFloat8ValuesArgs& args) {
  const OpLaunch launch("block_float8_values", {&args.x.codes, &args.x.scales, &args.out});
  const LineLayout at(args.out.shape(), args.orientation);
  launch(values_kernel, strided_grid(launch.device(), args.out.numel(), kThreads), kThreads, 0, bytes_of(args.x.codes),
         args.x.scales.data<float>(), args.out.data<float>(), at, float8_blocks(at.length), float8_blocks(at.lines),
         args.out.rank() == 3, args.out.numel());
}

QUENCH_CUDA_KERNEL(block_float8_cast_slot, block_float8_cast_cuda);
QUENCH_CUDA_KERNEL(block_float8_values_slot, block_float8_values_cuda);

}  // namespace
}  // namespace quench::cuda
