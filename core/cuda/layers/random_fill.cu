#include "core/ops/weights/random_fill.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// A random block of four elements per thread. out[begin]: first element; begin < 4 is its place within its block;
// elements below begin and from end on are not written.
template <class T>
__global__ __launch_bounds__(kThreads) void random_fill_kernel(T* out, std::int64_t begin, std::int64_t end,
                                                               std::uint64_t first_block, RandomKey key,
                                                               RandomDistribution distribution, float scale,
                                                               bool wide) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t block = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; 4 * block < end; block += step) {
    const RandomDraws draws = random_draws(key, first_block + static_cast<std::uint64_t>(block), distribution);
    Vector<T, 4> values;
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = from_float<T>(scale * draws.values[i]);
    if (wide && 4 * block >= begin && 4 * block + 4 <= end) {
      reinterpret_cast<Vector<T, 4>*>(out)[block] = values;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (4 * block + i >= begin && 4 * block + i < end) out[4 * block + i] = values[i];
    }
  }
}

void random_fill_cuda(const RandomFillArgs& args) {
  const OpLaunch launch("random_fill", {&args.out});
  const auto begin = static_cast<std::int64_t>(args.first % 4);
  const std::int64_t end = begin + args.out.numel();
  dispatch<float, bfloat16>(args.out.dtype(), "random_fill", [&]<class T>() {
    T* out = args.out.data<T>() - begin;
    launch(random_fill_kernel<T>, dim3(strided_grid(launch.device(), (end + 3) / 4, kThreads, 8, 4)), kThreads, 0, out,
           begin, end, args.first / 4, args.key, args.distribution, args.scale,
           reinterpret_cast<std::uintptr_t>(out) % (4 * sizeof(T)) == 0);
  });
}

QUENCH_CUDA_KERNEL(random_fill_slot, random_fill_cuda);

}  // namespace
}  // namespace quench::cuda
