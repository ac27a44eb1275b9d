// MX and NVFP4 emulation.

#include "core/cuda/quantize/mx_rounding.cuh"
#include "core/ops/quantize/round_mx.h"
#include "core/ops/quantize/round_nvfp4.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// Rowwise, one vector per thread; adjacent threads share a block.
template <class T, class Element, int kBlock, class Scale, class Factor>
__global__ __launch_bounds__(kThreads) void round_columns_kernel(const T* x, T* out, std::int64_t groups, Scale scale,
                                                                 Factor factor, bool wide) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  // Warp-uniform trip count for the shuffles.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x / 32 * 32; first < groups;
       first += stride) {
    const std::int64_t g = first + threadIdx.x % 32;
    const bool active = g < groups;
    const Piece piece =
        round_piece<Element, kBlock>(load_packed_piece(x + (active ? g : 0) * kPiece, wide), scale, factor);
    if (active) store_piece(out + g * kPiece, piece, wide);
  }
}

// Columnwise, 32 rows of kWidth adjacent columns per thread.
template <class T, class Element, int kWidth>
__global__ __launch_bounds__(kThreads) void round_rows_kernel(const T* x, T* out, MatrixBatch shape,
                                                              std::int64_t strips, std::int64_t parts,
                                                              MxScale<Element> scale) {
  const std::int64_t row_blocks = shape.rows / kMxBlockSize;
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const std::int64_t column = (strip * 32 + threadIdx.x % 32) * kWidth,
                     row_block = part * (kThreads / 32) + threadIdx.x / 32;
  if (column >= shape.columns || row_block >= row_blocks) return;
  const std::int64_t first = (batch * shape.rows + row_block * kMxBlockSize) * shape.columns + column;
  Packed<T, kWidth> raw[kMxBlockSize];
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i)
    raw[i] = *reinterpret_cast<const Packed<T, kWidth>*>(x + first + i * shape.columns);
  round_rows_of_columns<T, kWidth>(raw, scale);
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i)
    *reinterpret_cast<Packed<T, kWidth>*>(out + first + i * shape.columns) = raw[i];
}

template <class T, class Element, int kBlock, class Scale, class Factor>
void round_columns(const OpLaunch& launch, const Tensor& x, const Tensor& out, const Scale& scale,
                   const Factor& factor) {
  const std::int64_t groups = x.numel() / kPiece;
  launch(round_columns_kernel<T, Element, kBlock, Scale, Factor>, strided_grid(launch.device(), groups, kThreads, 8, 4),
         kThreads, 0, x.data<T>(), out.data<T>(), groups, scale, factor,
         aligned(x.raw_data()) && aligned(out.raw_data()));
}

void round_mx_cuda(const RoundMxArgs& args) {
  const OpLaunch launch("round_mx", {&args.x, &args.out});
  const MatrixBatch shape(args.x.shape());
  dispatch_quantize<E4m3, E2m1>("round_mx", args.x.dtype(), args.element, [&]<class T, class Element>() {
    const MxScale<Element> scale{args.mode};
    if (args.orientation == Orientation::natural)
      return round_columns<T, Element, kMxBlockSize>(launch, args.x, args.out, scale, MxFactor());
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    constexpr int kParts = kThreads / 32, kPair = sizeof(T) == 2 ? 2 : 1;
    const std::int64_t parts = (shape.rows / kMxBlockSize + kParts - 1) / kParts;
    const bool pairs = shape.columns % kPair == 0 && aligned(x, 4) && aligned(out, 4);
    const std::int64_t strips = (shape.columns / (pairs ? kPair : 1) + 31) / 32;
    launch(pairs ? round_rows_kernel<T, Element, kPair> : round_rows_kernel<T, Element, 1>,
           static_cast<unsigned>(shape.batch * strips * parts), kThreads, 0, x, out, shape, strips, parts, scale);
  });
}

void round_nvfp4_cuda(const RoundNvfp4Args& args) {
  const OpLaunch launch("round_nvfp4", {&args.x, &args.global_scale, &args.out});
  const float* global = args.global_scale.defined() ? args.global_scale.data<float>() : nullptr;
  dispatch<float, bfloat16>(args.x.dtype(), "round_nvfp4", [&]<class T>() {
    round_columns<T, E2m1, kNvfp4BlockSize>(launch, args.x, args.out, Nvfp4Scale{global}, Nvfp4Factor{global});
  });
}

QUENCH_CUDA_KERNEL(round_nvfp4_slot, round_nvfp4_cuda);
QUENCH_CUDA_KERNEL(round_mx_slot, round_mx_cuda);

}  // namespace
}  // namespace quench::cuda
