#include "core/ops/quantize/fake_quantize_float8.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"
#include "core/number/float8_decode.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// A block some rows, in vectors where `wide`. Reads x, writes out.
template <class T>
__global__ __launch_bounds__(kThreads) void fake_quantize_float8_kernel(const T* x, T* out, const float* amax,
                                                                        std::int64_t rows, std::int64_t columns,
                                                                        int amax_step, bool to_bf16, bool wide) {
  constexpr int kWidth = kVectorWidth<T>;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float scale = float8_decode_scale(amax[row * amax_step], to_bf16);
    const T* from = x + row * columns;
    T* to = out + row * columns;
    const auto through = [&](T value) { return from_float<T>(through_e4m3(to_float(value), scale)); };
    if (wide) {
      for (std::int64_t i = threadIdx.x; i < columns / kWidth; i += kThreads) {
        Wide<T> values = reinterpret_cast<const Wide<T>*>(from)[i];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = through(values[k]);
        reinterpret_cast<Wide<T>*>(to)[i] = values;
      }
    } else {
      for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) to[i] = through(from[i]);
    }
  }
}

void fake_quantize_float8_cuda(const FakeQuantizeFloat8Args& args) {
  const OpLaunch launch("fake_quantize_float8", {&args.x, &args.amax, &args.out});
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1);
  dispatch<float, bfloat16>(args.x.dtype(), "fake_quantize_float8", [&]<class T>() {
    const bool wide = rows_are_wide<T>(args.x.raw_data(), columns, columns) &&
                      rows_are_wide<T>(args.out.raw_data(), columns, columns);
    launch(fake_quantize_float8_kernel<T>, dim3(strided_grid(launch.device(), rows, 1, 8, 4)), kThreads, 0,
           args.x.data<T>(), args.out.data<T>(), args.amax.data<float>(), rows, columns, args.amax.rank() == 2 ? 1 : 0,
           args.scale_dtype == DType::bf16, wide);
  });
}

QUENCH_CUDA_KERNEL(fake_quantize_float8_slot, fake_quantize_float8_cuda);

}  // namespace
}  // namespace quench::cuda
