#include "core/ops/basic/softmax.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/rows.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kLongRow = 1024;  // elements from which a CTA shares a row

// Result in the kGroup threads of a row: a warp, or the CTA.
template <int kGroup, class Op>
__device__ inline float reduce_row(float value, float identity, Op op) {
  if constexpr (kGroup == 32) {
    return warp_reduce(value, op);
  } else {
    __shared__ float scratch[33];
    return block_reduce<kGroup>(value, identity, scratch, op);
  }
}

// Number of this thread's row, and its first element within.
template <int kGroup>
struct Place {
  std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kGroup) + threadIdx.x / kGroup;
  std::int64_t first = threadIdx.x % kGroup;
};

template <class T, int kGroup>
__global__ __launch_bounds__(kThreads) void softmax_kernel(const T* x, T* y, std::int64_t rows, std::int64_t width) {
  const Place<kGroup> place;
  if (place.row >= rows) return;  // whole warps
  x += place.row * width;
  y += place.row * width;
  float most = -INFINITY, sum = 0.0f;
  for (std::int64_t i = place.first; i < width; i += kGroup) most = Max()(most, to_float(x[i]));
  most = reduce_row<kGroup>(most, -INFINITY, Max());
  for (std::int64_t i = place.first; i < width; i += kGroup) sum += expf(to_float(x[i]) - most);
  const float factor = 1.0f / reduce_row<kGroup>(sum, 0.0f, Sum());
  for (std::int64_t i = place.first; i < width; i += kGroup) y[i] = from_float<T>(expf(to_float(x[i]) - most) * factor);
}

template <class T, int kGroup>
__global__ __launch_bounds__(kThreads) void softmax_backward_kernel(const T* dy, const T* y, T* dx, std::int64_t rows,
                                                                    std::int64_t width) {
  const Place<kGroup> place;
  if (place.row >= rows) return;  // whole warps
  dy += place.row * width;
  y += place.row * width;
  dx += place.row * width;
  float sum = 0.0f;
  for (std::int64_t i = place.first; i < width; i += kGroup) sum = fmaf(to_float(dy[i]), to_float(y[i]), sum);
  sum = reduce_row<kGroup>(sum, 0.0f, Sum());
  for (std::int64_t i = place.first; i < width; i += kGroup)
    dx[i] = from_float<T>(to_float(y[i]) * (to_float(dy[i]) - sum));
}

unsigned grid_of(std::int64_t rows, int group) {
  const std::int64_t rows_per_cta = kThreads / group;
  return static_cast<unsigned>((rows + rows_per_cta - 1) / rows_per_cta);
}

void softmax(const SoftmaxArgs& args) {
  const OpLaunch launch("softmax", {&args.x, &args.y});
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  check_row_count("softmax", rows);
  dispatch<float, bfloat16>(args.y.dtype(), "softmax", [&]<class T>() {
    const bool shared = width >= kLongRow;
    launch(shared ? softmax_kernel<T, kThreads> : softmax_kernel<T, 32>, grid_of(rows, shared ? kThreads : 32),
           kThreads, 0, args.x.data<T>(), args.y.data<T>(), rows, width);
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  const OpLaunch launch("softmax_backward", {&args.dy, &args.y, &args.dx});
  const std::int64_t rows = args.dx.size(0), width = args.dx.size(1);
  check_row_count("softmax_backward", rows);
  dispatch<float, bfloat16>(args.dx.dtype(), "softmax_backward", [&]<class T>() {
    const bool shared = width >= kLongRow;
    launch(shared ? softmax_backward_kernel<T, kThreads> : softmax_backward_kernel<T, 32>,
           grid_of(rows, shared ? kThreads : 32), kThreads, 0, args.dy.data<T>(), args.y.data<T>(), args.dx.data<T>(),
           rows, width);
  });
}

QUENCH_CUDA_KERNEL(softmax_slot, softmax);
QUENCH_CUDA_KERNEL(softmax_backward_slot, softmax_backward);

}  // namespace
}  // namespace quench::cuda
