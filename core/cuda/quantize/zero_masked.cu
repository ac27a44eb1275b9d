// Zero fill by mask. Zero bits are rare: x is mostly untouched.

#include "core/cuda/quantize/quantize_common.cuh"
#include "core/ops/quantize/quantize_int.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;            // mask words per read
constexpr int kChunk = kWords * 32;  // elements per read
constexpr int kChunkBytes = kWords * 4;

template <class T>
__device__ void zero_where(T* x, std::uint32_t zeros) {
  while (zeros != 0) {
    x[__ffs(static_cast<int>(zeros)) - 1] = from_float<T>(0.0f);
    zeros &= zeros - 1;
  }
}

// Rows are whole mask bytes: bit i is element i. `chunks` aligned reads, then the remaining bytes.
template <class T>
__global__ __launch_bounds__(kThreads) void zero_masked_kernel(T* x, const std::uint8_t* mask, std::int64_t chunks,
                                                               std::int64_t bytes) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t c = thread; c < chunks; c += step) {
    const uint4 words = reinterpret_cast<const uint4*>(mask)[c];
    if ((words.x & words.y & words.z & words.w) == 0xFFFFFFFFu) continue;
    T* at = x + c * kChunk;
    zero_where(at, ~words.x);
    zero_where(at + 32, ~words.y);
    zero_where(at + 64, ~words.z);
    zero_where(at + 96, ~words.w);
  }
  for (std::int64_t b = chunks * kChunkBytes + thread; b < bytes; b += step)
    zero_where(x + b * 8, ~std::uint32_t{mask[b]} & 0xFFu);
}

// Any row length: one mask byte per thread; bits past the row's end are ignored.
template <class T>
__global__ __launch_bounds__(kThreads) void zero_masked_rows_kernel(T* x, const std::uint8_t* mask, std::int64_t rows,
                                                                    std::int64_t columns) {
  const std::int64_t bytes = (columns + 7) / 8, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t b = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; b < rows * bytes; b += step) {
    const std::uint32_t zeros = ~std::uint32_t{mask[b]} & 0xFFu;
    if (zeros == 0) continue;
    const std::int64_t row = b / bytes, first = b % bytes * 8;
    const std::int64_t here = min(std::int64_t{8}, columns - first);
    zero_where(x + row * columns + first, zeros & ((1u << here) - 1u));
  }
}

void zero_masked_cuda(const ZeroMaskedArgs& args) {
  const OpLaunch launch("zero_masked", {&args.x, &args.mask});
  const std::int64_t columns = args.x.size(-1), rows = args.x.numel() / columns, bytes = args.mask.numel();
  const auto* mask = args.mask.data<std::uint8_t>();
  dispatch<float, bfloat16>(args.x.dtype(), "zero_masked", [&]<class T>() {
    if (columns % 8 != 0) {
      launch(zero_masked_rows_kernel<T>, dim3(strided_grid(launch.device(), bytes, kThreads, 8, 4)), kThreads, 0,
             args.x.data<T>(), mask, rows, columns);
      return;
    }
    const std::int64_t chunks = aligned(mask, kChunkBytes) ? bytes / kChunkBytes : 0;
    launch(zero_masked_kernel<T>, dim3(strided_grid(launch.device(), chunks > 0 ? chunks : bytes, kThreads, 8, 4)),
           kThreads, 0, args.x.data<T>(), mask, chunks, bytes);
  });
}

QUENCH_CUDA_KERNEL(zero_masked_slot, zero_masked_cuda);

}  // namespace
}  // namespace quench::cuda
