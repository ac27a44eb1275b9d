#include "core/ops/dropout.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// Four elements per thread, one random block.
template <class T>
__global__ __launch_bounds__(kThreads) void dropout_kernel(const T* x, T* out, std::int64_t n, float probability,
                                                           float factor, RandomKey key, bool wide) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t block = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; 4 * block < n; block += step) {
    const PhiloxBlock words = random_block(key, static_cast<std::uint64_t>(block));
    const auto kept = [&](float value, int i) {
      return from_float<T>(to_uniform(words.words[i]) >= probability ? value * factor : 0.0f);
    };
    if (wide && 4 * block + 4 <= n) {
      Vector<T, 4> values = reinterpret_cast<const Vector<T, 4>*>(x)[block];
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = kept(to_float(values[i]), i);
      reinterpret_cast<Vector<T, 4>*>(out)[block] = values;
    } else {
      for (int i = 0; i < 4 && 4 * block + i < n; ++i) out[4 * block + i] = kept(to_float(x[4 * block + i]), i);
    }
  }
}

void dropout_cuda(const DropoutArgs& args) {
  const OpLaunch launch("dropout", {&args.x, &args.out});
  const std::int64_t n = args.x.numel();
  const auto aligned = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0; };
  dispatch<float, bfloat16>(args.x.dtype(), "dropout", [&]<class T>() {
    launch(dropout_kernel<T>, dim3(strided_grid(launch.device(), (n + 3) / 4, kThreads, 8, 4)), kThreads, 0,
           args.x.data<T>(), args.out.data<T>(), n, args.probability, 1.0f / (1.0f - args.probability), args.key,
           aligned(args.x) && aligned(args.out));
  });
}

QUENCH_CUDA_KERNEL(dropout_slot, dropout_cuda);

}  // namespace
}  // namespace quench::cuda
