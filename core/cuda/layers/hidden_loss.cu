// Distance of hidden states, one CTA per row: a pass of sums, and a pass of the gradient.

#include "core/ops/loss/hidden_loss.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/hidden_distance.h"

namespace quench::cuda {
namespace {

constexpr int kHiddenThreads = 256;

template <class T>
struct HiddenRows {
  const T* student;
  const T* teacher;
  const std::int32_t* labels;
  float* losses;
  T* dstudent;  // may alias student or teacher
  std::int64_t rows, width;
  HiddenDistance distance;
  float grad_scale;
};

template <class T, bool kWide>
__global__ __launch_bounds__(kHiddenThreads) void hidden_loss_kernel(HiddenRows<T> args) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  __shared__ float scratch[33];
  const std::int64_t end = args.width / kWidth;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* student = args.student + row * args.width;
    const T* teacher = args.teacher + row * args.width;
    T* gradient = args.dstudent + row * args.width;
    if (args.labels[row] == kIgnoreLabel) {
      if (threadIdx.x == 0) args.losses[row] = 0.0f;
      for (std::int64_t v = threadIdx.x; v < end; v += kHiddenThreads)
        store_values(gradient, v, Vector<float, kWidth>{});
      continue;
    }
    HiddenSums sums;
    for (std::int64_t v = threadIdx.x; v < end; v += kHiddenThreads) {
      const auto s = unpack(load_packed<T, kWidth>(student, v));
      const auto t = unpack(load_packed<T, kWidth>(teacher, v));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sums.squared_difference += (s[j] - t[j]) * (s[j] - t[j]);
        sums.student += s[j] * s[j];
        sums.teacher += t[j] * t[j];
        sums.product += s[j] * t[j];
      }
    }
    for (float* sum : {&sums.squared_difference, &sums.student, &sums.teacher, &sums.product})
      *sum = block_reduce<kHiddenThreads>(*sum, 0.0f, scratch, Sum());
    const HiddenRow of_row = hidden_row(args.distance, sums, static_cast<float>(args.width));
    if (threadIdx.x == 0) args.losses[row] = of_row.loss;
    for (std::int64_t v = threadIdx.x; v < end; v += kHiddenThreads) {
      auto s = unpack(load_packed<T, kWidth>(student, v));
      const auto t = unpack(load_packed<T, kWidth>(teacher, v));
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        s[j] = (s[j] - t[j]) * (of_row.difference * args.grad_scale) +
               (s[j] * of_row.student + t[j] * of_row.teacher) * args.grad_scale;
      store_values(gradient, v, s);
    }
  }
}

void hidden_loss(const HiddenLossArgs& args) {
  const OpLaunch launch("hidden_loss", {&args.student, &args.teacher, &args.labels, &args.losses, &args.dstudent});
  dispatch<float, bfloat16>(args.student.dtype(), "hidden_loss", [&]<class T>() {
    const HiddenRows<T> rows{.student = args.student.data<T>(),
                             .teacher = args.teacher.data<T>(),
                             .labels = args.labels.data<std::int32_t>(),
                             .losses = args.losses.data<float>(),
                             .dstudent = args.dstudent.data<T>(),
                             .rows = args.student.size(0),
                             .width = args.student.size(1),
                             .distance = args.distance,
                             .grad_scale = args.grad_scale};
    const bool wide = rows_are_wide<T>(rows.student, rows.width, rows.width) &&
                      rows_are_wide<T>(rows.teacher, rows.width, rows.width) &&
                      reinterpret_cast<std::uintptr_t>(rows.dstudent) % 16 == 0;
    launch(wide ? hidden_loss_kernel<T, true> : hidden_loss_kernel<T, false>,
           strided_grid(launch.device(), rows.rows, 1), kHiddenThreads, 0, rows);
  });
}

QUENCH_CUDA_KERNEL(hidden_loss_slot, hidden_loss);

}  // namespace
}  // namespace quench::cuda
