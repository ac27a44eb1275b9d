// Blockwise float8: a block takes a tile of 128 lines by 128 of their elements through shared memory, where lines are
// rows whichever way they lie in x.

#include "core/cuda/common/reduce.cuh"
#include "core/cuda/quantize/quantize_common.cuh"
#include "core/ops/quantize/block_float8.h"

namespace quench::cuda {
namespace {

constexpr int kTile = static_cast<int>(kFloat8Block), kThreads = 256;
// One more element a row, so that neighbours in a column have other banks.
constexpr int kPitch = kTile + 1;
constexpr std::size_t kTileBytes = sizeof(float) * kTile * kPitch;

// How the elements of lines lie in memory.
struct LineLayout {
  std::int64_t batch = 1, lines, length;  // matrices, lines of each, elements of a line
  std::int64_t line_step, step;           // between neighbouring lines, and within a line
  LineLayout(const Shape& shape, Orientation orientation)
      : lines(shape[-2]), length(shape[-1]), line_step(shape[-1]), step(1) {
    if (shape.rank() == 3) batch = shape[0];
    if (orientation == Orientation::natural) return;
    std::swap(lines, length);
    std::swap(line_step, step);
  }
  [[nodiscard]] std::int64_t blocks() const { return float8_blocks(length); }
  [[nodiscard]] std::int64_t line_blocks() const { return float8_blocks(lines); }
};

// A thread has half of a line: its magnitude, then its codes.
template <class T, bool kSquares>
__global__ __launch_bounds__(kThreads) void cast_tiles_kernel(const T* x, std::uint8_t* codes, float* scales,
                                                              LineLayout at, std::int64_t blocks,
                                                              std::int64_t line_blocks) {
  extern __shared__ float tile[];
  __shared__ std::uint32_t most_of_warp[kThreads / 32];
  const std::int64_t block = blockIdx.x % blocks, tile_row = blockIdx.x / blocks % line_blocks,
                     matrix = blockIdx.x / blocks / line_blocks;
  const std::int64_t first_line = tile_row * kTile, first = block * kTile;
  const T* from = x + matrix * at.lines * at.length;
  const bool natural = at.step == 1;
  const int inner = static_cast<int>(threadIdx.x) % kTile;
  for (int outer = static_cast<int>(threadIdx.x) / kTile; outer < kTile; outer += kThreads / kTile) {
    const int line = natural ? outer : inner, k = natural ? inner : outer;
    const bool inside = first_line + line < at.lines && first + k < at.length;
    tile[line * kPitch + k] =
        inside ? to_float(from[(first_line + line) * at.line_step + (first + k) * at.step]) : 0.0f;
  }
  __syncthreads();

  const int line = static_cast<int>(threadIdx.x) / 2, half = static_cast<int>(threadIdx.x) % 2;
  const float* values = tile + line * kPitch + half * (kTile / 2);
  std::uint32_t most = 0;
#pragma unroll 8
  for (int i = 0; i < kTile / 2; ++i) most = max(most, magnitude(values[i]));
  most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
  if constexpr (kSquares) {
#pragma unroll
    for (int offset = 2; offset < 32; offset *= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
    if (threadIdx.x % 32 == 0) most_of_warp[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) most = max(most, most_of_warp[i]);
  }
  const float scale = float8_scale(__uint_as_float(most), E4m3::kMax, false);
  if (kSquares && threadIdx.x == 0) scales[(matrix * line_blocks + tile_row) * blocks + block] = __frcp_rn(scale);
  if (first_line + line >= at.lines) return;
  if (!kSquares && half == 0) scales[block * at.lines + first_line + line] = __frcp_rn(scale);
  // Pieces of 16 codes begin at multiples of 16 bytes.
  auto* to = reinterpret_cast<uint4*>(codes + ((matrix * at.lines + first_line + line) * blocks + block) * kTile +
                                      half * (kTile / 2));
#pragma unroll
  for (int piece = 0; piece < kTile / 2 / 16; ++piece) {
    std::uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float* four = values + piece * 16 + w * 4;
      words[w] = encode_pair<E4m3>(four[0] * scale, four[1] * scale) |
                 encode_pair<E4m3>(four[2] * scale, four[3] * scale) << 16;
    }
    to[piece] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

void block_float8_cast_cuda(const BlockFloat8CastArgs& args) {
  const OpLaunch launch("block_float8_cast", {&args.x, &args.out.codes, &args.out.scales});
  QUENCH_CHECK(aligned(args.out.codes.raw_data()), "block_float8_cast: codes do not begin at a multiple of 16 bytes");
  const LineLayout at(args.x.shape(), args.orientation);
  const auto grid = static_cast<unsigned>(at.batch * at.blocks() * at.line_blocks());
  dispatch<float, bfloat16>(args.x.dtype(), "block_float8_cast", [&]<class T>() {
    launch(args.squares ? cast_tiles_kernel<T, true> : cast_tiles_kernel<T, false>, grid, kThreads, kTileBytes,
           args.x.data<T>(), bytes_of(args.out.codes), args.out.scales.data<float>(), at, at.blocks(),
           at.line_blocks());
  });
}

// A thread an element of out.
__global__ __launch_bounds__(kThreads) void values_kernel(const std::uint8_t* codes, const float* scales, float* out,
                                                          LineLayout at, std::int64_t blocks, std::int64_t line_blocks,
                                                          bool squares, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads, of_matrix = at.lines * at.length;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t matrix = i / of_matrix, rest = i % of_matrix;
    const std::int64_t row = at.step == 1 ? at.length : at.lines;  // of out
    const std::int64_t line = at.step == 1 ? rest / row : rest % row, k = at.step == 1 ? rest % row : rest / row;
    const float scale = squares ? scales[(matrix * line_blocks + line / kTile) * blocks + k / kTile]
                                : scales[k / kTile * at.lines + line];
    out[i] = E4m3::decode(codes[(matrix * at.lines + line) * blocks * kTile + k]) * scale;
  }
}

void block_float8_values_cuda(const BlockFloat8ValuesArgs& args) {
  const OpLaunch launch("block_float8_values", {&args.x.codes, &args.x.scales, &args.out});
  const LineLayout at(args.out.shape(), args.orientation);
  launch(values_kernel, strided_grid(launch.device(), args.out.numel(), kThreads), kThreads, 0, bytes_of(args.x.codes),
         args.x.scales.data<float>(), args.out.data<float>(), at, at.blocks(), at.line_blocks(), args.out.rank() == 3,
         args.out.numel());
}

QUENCH_CUDA_KERNEL(block_float8_cast_slot, block_float8_cast_cuda);
QUENCH_CUDA_KERNEL(block_float8_values_slot, block_float8_values_cuda);

}  // namespace
}  // namespace quench::cuda
