#include "core/ops/elementwise.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// Memory bound. A CTA per row.
template <int N, class T>
__global__ __launch_bounds__(kThreads) void scale_rows_kernel(T* x, const float* factors, std::int64_t width) {
  T* row = x + blockIdx.x * width;
  const float factor = factors[blockIdx.x];
  for (std::int64_t i = threadIdx.x; i < width / N; i += kThreads) {
    Vector<float, N> values = unpack(load_packed<T, N>(row, i));
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = factor != 0.0f ? values[j] * factor : 0.0f;
    store_values(row, i, values);
  }
}

void scale_rows(const ScaleRowsArgs& args) {
  const OpLaunch launch("scale_rows", {&args.x, &args.factors});
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  dispatch<float, bfloat16>(args.x.dtype(), "scale_rows", [&]<class T>() {
    constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    T* x = args.x.data<T>();
    const bool wide = width % kWidth == 0 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
    launch(wide ? scale_rows_kernel<kWidth, T> : scale_rows_kernel<1, T>, static_cast<unsigned>(rows), kThreads, 0, x,
           args.factors.data<float>(), width);
  });
}

QUENCH_CUDA_KERNEL(scale_rows_slot, scale_rows);

}  // namespace
}  // namespace quench::cuda
