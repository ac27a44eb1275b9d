#include "core/ops/quantize/fake_quantize_float8.h"

#include <cuda_fp16.h>

#include "core/cuda/quantize/row_pieces.cuh"
#include "core/number/float8_decode.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// through_e4m3(), with paired conversions.
__device__ void round_piece(Piece& piece, float scale) {
#pragma unroll
  for (int i = 0; i < kPiece; i += 2) {
    const auto codes = static_cast<__nv_fp8x2_storage_t>(encode_pair<E4m3>(piece[i] / scale, piece[i + 1] / scale));
    const float2 values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
    piece[i] = values.x * scale;
    piece[i + 1] = values.y * scale;
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void fake_quantize_float8_kernel(const T* x, T* out, const float* amax,
                                                                        std::int64_t rows, std::int64_t columns,
                                                                        int amax_step, bool to_bf16, bool wide) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float scale = float8_decode_scale(amax[row * amax_step], to_bf16);
    const std::int64_t first = row * columns;
    for (std::int64_t c = std::int64_t{threadIdx.x} * kPiece; c < columns; c += kThreads * kPiece) {
      const auto here = static_cast<int>(min(std::int64_t{kPiece}, columns - c));
      Piece piece = load_piece(x + first + c, wide, here);
      round_piece(piece, scale);
      store_piece(out + first + c, piece, wide, here);
    }
  }
}

// Row maximum, in every thread.
template <int kRowThreads>
__device__ std::uint32_t largest_of_row(std::uint32_t own) {
  own = __reduce_max_sync(0xFFFFFFFFu, own);
  if constexpr (kRowThreads > 32) {
    constexpr int kWarps = kRowThreads / 32;
    __shared__ std::uint32_t of_warps[kWarps];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    own = __reduce_max_sync(0xFFFFFFFFu, of_warps[threadIdx.x % kWarps]);
  }
  return own;
}

// Rowwise; rows stay in registers during the amax reduction.
template <class T, int kRowThreads, int kKept>
__global__ __launch_bounds__(kRowBlock<kRowThreads>,
                             kRowBlocks<kRowThreads>) void fake_float8_rows_kernel(const T* x, T* out,
                                                                                   std::int64_t rows, int columns,
                                                                                   bool to_bf16) {
  const std::int64_t row = row_number<kRowThreads>();
  if (row >= rows) return;  // by whole warps
  RowPieces<T, kRowThreads, kKept> kept;
  kept.load(x + row * columns, columns);
  PackedPiece<T> most = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k) raise(most, kept.pieces[k]);
  const float amax = __uint_as_float(largest_of_row<kRowThreads>(largest(most)));
  const float scale = float8_decode_scale(amax, to_bf16);
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int column = kept.column(k);
    if (column >= columns) continue;
    Piece piece = unpack(kept.pieces[k]);
    round_piece(piece, scale);
    store_piece(out + row * columns + column, piece, true);
  }
}

void fake_quantize_float8_cuda(const FakeQuantizeFloat8Args& args) {
  const OpLaunch launch("fake_quantize_float8", {&args.x, &args.amax, &args.out});
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1);
  const bool to_bf16 = args.scale_dtype == DType::bf16;
  dispatch<float, bfloat16>(args.x.dtype(), "fake_quantize_float8", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    const bool wide = columns % kPiece == 0 && aligned(x) && aligned(out);
    if (!args.amax.defined() && wide && with_usual_row_plan<T>(columns, [&]<class Plan>() {
          launch(fake_float8_rows_kernel<T, Plan::kThreads, Plan::kKept>, row_grid<Plan>(rows),
                 kRowBlock<Plan::kThreads>, 0, x, out, rows, static_cast<int>(columns), to_bf16);
        }))
      return;
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor most = args.amax.defined() ? args.amax : amax(args.x, Granularity::row);
    launch(fake_quantize_float8_kernel<T>, dim3(strided_grid(launch.device(), rows, 1, 8, 4)), kThreads, 0, x, out,
           most.data<float>(), rows, columns, most.rank() == 2 ? 1 : 0, to_bf16, wide);
  });
}

QUENCH_CUDA_KERNEL(fake_quantize_float8_slot, fake_quantize_float8_cuda);

}  // namespace
}  // namespace quench::cuda
