// Rounding to MX blocks of e4m3 and back: reads x once and writes as much.

#include "core/cuda/quantize/mx_rounding.cuh"
#include "core/ops/quantize/round_mx.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// A thread a piece, four neighbours a block along the columns.
template <class T>
__global__ __launch_bounds__(kThreads) void round_columns_kernel(const T* x, T* out, std::int64_t groups,
                                                                 MxScale<E4m3> scale, bool wide) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  // The bound is the same for a whole warp: its lanes take part in the exchange together.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x / 32 * 32; first < groups;
       first += stride) {
    const std::int64_t g = first + threadIdx.x % 32;
    const bool active = g < groups;
    const Piece piece = round_piece(load_packed_piece(x + (active ? g : 0) * kPiece, wide), scale);
    if (active) store_piece(out + g * kPiece, piece, wide);
  }
}

// A thread a block of 32 rows of kWidth neighbouring columns.
template <class T, int kWidth>
__global__ __launch_bounds__(kThreads) void round_rows_kernel(const T* x, T* out, MatrixBatch shape,
                                                              std::int64_t strips, std::int64_t parts,
                                                              MxScale<E4m3> scale) {
  const std::int64_t row_blocks = shape.rows / kMxBlockSize;
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const std::int64_t column = (strip * 32 + threadIdx.x % 32) * kWidth,
                     row_block = part * (kThreads / 32) + threadIdx.x / 32;
  if (column >= shape.columns || row_block >= row_blocks) return;
  const std::int64_t first = (batch * shape.rows + row_block * kMxBlockSize) * shape.columns + column;
  PackedOf<T, kWidth> raw[kMxBlockSize];
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i)
    raw[i] = *reinterpret_cast<const PackedOf<T, kWidth>*>(x + first + i * shape.columns);
  round_rows_of_columns<T, kWidth>(raw, scale);
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i)
    *reinterpret_cast<PackedOf<T, kWidth>*>(out + first + i * shape.columns) = raw[i];
}

void round_mx_cuda(const RoundMxArgs& args) {
  const OpLaunch launch("round_mx", {&args.x, &args.out});
  const MxScale<E4m3> scale{args.mode};
  const MatrixBatch shape(args.x.shape());
  dispatch<float, bfloat16>(args.x.dtype(), "round_mx", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    if (args.orientation == Orientation::natural) {
      const std::int64_t groups = args.x.numel() / kPiece;
      launch(round_columns_kernel<T>, strided_grid(launch.device(), groups, kThreads, 8, 4), kThreads, 0, x, out,
             groups, scale, aligned(x) && aligned(out));
      return;
    }
    constexpr int kParts = kThreads / 32, kPair = sizeof(T) == 2 ? 2 : 1;
    const std::int64_t parts = (shape.rows / kMxBlockSize + kParts - 1) / kParts;
    const bool pairs = shape.columns % kPair == 0 && aligned(x, 4) && aligned(out, 4);
    const std::int64_t strips = (shape.columns / (pairs ? kPair : 1) + 31) / 32;
    launch(pairs ? round_rows_kernel<T, kPair> : round_rows_kernel<T, 1>,
           static_cast<unsigned>(shape.batch * strips * parts), kThreads, 0, x, out, shape, strips, parts, scale);
  });
}

QUENCH_CUDA_KERNEL(round_mx_slot, round_mx_cuda);

}  // namespace
}  // namespace quench::cuda
