// Columnwise float8 emulation per group: amax, then rounding, one CTA per column strip. Long groups are read twice,
// mostly from L2.

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/number/float8.h"
#include "core/ops/experts/round_groups.h"

namespace quench::cuda {
namespace {

constexpr int kColumns = 32, kSlices = 16;

template <class Element, class T>
__global__ __launch_bounds__(kColumns* kSlices) void round_groups_kernel(const T* x, const std::int32_t* ends,
                                                                         int groups, std::int64_t rows,
                                                                         std::int64_t width, bool power_of_two,
                                                                         T* out) {
  __shared__ float most[kSlices][kColumns];
  const int group = static_cast<int>(blockIdx.y);
  const std::int64_t begin = group > 0 ? ends[group - 1] : 0, end = group < groups ? ends[group] : rows;
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
  const bool inside = column < width;
  if (group == groups) {  // past the last group
    for (std::int64_t r = begin + threadIdx.y; r < end && inside; r += kSlices)
      out[r * width + column] = from_float<T>(0.0f);
    return;
  }
  float amax = 0;
  if (inside)
    for (std::int64_t r = begin + threadIdx.y; r < end; r += kSlices)
      amax = Max()(amax, fabsf(to_float(x[r * width + column])));
  most[threadIdx.y][threadIdx.x] = amax;
  __syncthreads();
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) amax = Max()(amax, most[slice][threadIdx.x]);
  const float scale = float8_scale(amax, Element::kMax, power_of_two);
  if (!inside) return;
  for (std::int64_t r = begin + threadIdx.y; r < end; r += kSlices) {
    const float scaled = to_float(x[r * width + column]) * scale;
    out[r * width + column] = from_float<T>(__fdiv_rn(Element::decode(Element::encode(scaled)), scale));
  }
}

void round_groups_cuda(const RoundGroupsArgs& args) {
  const OpLaunch launch("round_groups", {&args.x, &args.ends, &args.out});
  const std::int64_t rows = args.x.size(0), width = args.x.size(1), groups = args.ends.size(0);
  const dim3 grid(static_cast<unsigned>((width + kColumns - 1) / kColumns), static_cast<unsigned>(groups + 1));
  dispatch<float, bfloat16>(args.x.dtype(), "round_groups", [&]<class T>() {
    launch(args.element == ElementFormat::e4m3 ? round_groups_kernel<E4m3, T> : round_groups_kernel<E5m2, T>, grid,
           dim3(kColumns, kSlices), 0, args.x.data<T>(), args.ends.data<std::int32_t>(), static_cast<int>(groups), rows,
           width, args.power_of_two, args.out.data<T>());
  });
}

QUENCH_CUDA_KERNEL(round_groups_slot, round_groups_cuda);

}  // namespace
}  // namespace quench::cuda
