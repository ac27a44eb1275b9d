// Vocabulary in parts: statistics of a part's logits, then losses and gradients from those of all parts. A CTA per row;
// logits are read twice, 16 bytes per thread where rows are aligned.

#include "core/ops/loss/vocabulary_parts.h"

#include "core/cuda/vocabulary/cross_entropy.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512;

template <class T>
struct PartRows {
  const T* logits;
  const std::int32_t* labels;
  std::int64_t rows, width, first;

  // Column of the row's label; negative: of another part.
  [[nodiscard]] __device__ std::int64_t own_label(std::int64_t row) const {
    const std::int64_t own = labels[row] - first;
    return own < width ? own : -1;
  }
};

template <class T, bool kWide>
__global__ __launch_bounds__(kThreads) void statistics_kernel(PartRows<T> args, float* statistics) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  __shared__ float scratch[33];
  const std::int64_t end = args.width / kWidth;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* logits = args.logits + row * args.width;
    float largest = -INFINITY, sum = 0;
#pragma unroll 4
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      const Vector<float, kWidth> x = unpack(load_packed<T, kWidth>(logits, v));
      float step_largest = largest;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) step_largest = fmaxf(step_largest, x[j]);
      const float shift = shift_of(step_largest);
      if (step_largest > largest) sum *= expf(largest - shift);
      largest = step_largest;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum += exp_term<T>(x[j] - shift);
    }
    const float row_largest = block_reduce<kThreads>(largest, -INFINITY, scratch, LargestNumber());
    const float row_sum = block_reduce<kThreads>(sum * expf(largest - shift_of(row_largest)), 0.0f, scratch, Sum());
    if (threadIdx.x != 0) continue;
    const std::int64_t own = args.own_label(row);
    float* out = statistics + row * kLogitsStatistics;
    out[0] = row_largest;
    out[1] = row_sum;
    out[2] = own >= 0 ? to_float(logits[own]) : 0.0f;
  }
}

template <class T, class G, bool kWide>
__global__ __launch_bounds__(kThreads) void part_loss_kernel(PartRows<T> args, const float* statistics,
                                                             std::int64_t parts, float* losses, G* dlogits,
                                                             float scale) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  const std::int64_t end = args.width / kWidth;
  for (std::int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const T* logits = args.logits + row * args.width;
    G* gradients = dlogits != nullptr ? dlogits + row * args.width : nullptr;
    const std::int32_t label = args.labels[row];
    if (label == kIgnoreLabel) {
      if (threadIdx.x == 0) losses[row] = 0.0f;
      if (gradients != nullptr)
        for (std::int64_t v = threadIdx.x; v < end; v += kThreads)
          store_gradient(gradients, v, Vector<float, kWidth>{}, 1.0f);
      continue;
    }
    // Few parts: every thread adds them up, in their order.
    float largest = -INFINITY, sum = 0, label_logit = 0;
    for (std::int64_t part = 0; part < parts; ++part)
      largest = fmaxf(largest, statistics[(part * args.rows + row) * kLogitsStatistics]);
    const float shift = shift_of(largest);
    for (std::int64_t part = 0; part < parts; ++part) {
      const float* of_part = statistics + (part * args.rows + row) * kLogitsStatistics;
      sum += of_part[1] * expf(of_part[0] - shift);
      label_logit += of_part[2];
    }
    if (label < 0 || label >= parts * args.width) sum = __int_as_float(0x7FC00000);  // invalid label: NaN
    if (threadIdx.x == 0) losses[row] = logf(sum) + (largest - label_logit);
    if (gradients == nullptr) continue;
    const float factor = scale / sum;
    const auto own = static_cast<std::int32_t>(args.own_label(row) >= 0 ? args.own_label(row) : -1);
#pragma unroll 4
    for (std::int64_t v = threadIdx.x; v < end; v += kThreads) {
      auto terms = unpack(load_packed<T, kWidth>(logits, v));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) terms[j] = exp_term<T>(terms[j] - shift);
      store_gradients(gradients, v, terms, factor, scale, own, 1.0f);
    }
  }
}

__global__ __launch_bounds__(kThreads) void own_rows_kernel(const std::int32_t* ids, std::int64_t n, std::int64_t first,
                                                            std::int64_t count, std::int32_t* rows, float* factors) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    const std::int64_t own = ids[i] - first;
    const bool is_own = own >= 0 && own < count;
    // Ids elsewhere are spread: their zeros are added to many rows of a gradient.
    rows[i] = static_cast<std::int32_t>(is_own ? own : static_cast<std::uint32_t>(ids[i]) % count);
    factors[i] = is_own ? 1.0f : 0.0f;
  }
}

template <class T>
PartRows<T> rows_of_part(const Tensor& logits, const Tensor& labels, std::int64_t first) {
  return {.logits = logits.data<T>(),
          .labels = labels.data<std::int32_t>(),
          .rows = logits.size(0),
          .width = logits.size(1),
          .first = first};
}

void logits_statistics_cuda(const LogitsStatisticsArgs& args) {
  const OpLaunch launch("logits_statistics", {&args.logits, &args.labels, &args.statistics});
  dispatch<float, bfloat16>(args.logits.dtype(), "logits_statistics", [&]<class T>() {
    const PartRows<T> rows = rows_of_part<T>(args.logits, args.labels, args.first);
    const bool wide = rows_are_wide<T>(rows.logits, rows.width, rows.width);
    launch(wide ? statistics_kernel<T, true> : statistics_kernel<T, false>,
           strided_grid(launch.device(), rows.rows, 1, 4, 4), kThreads, 0, rows, args.statistics.data<float>());
  });
}

void cross_entropy_part_cuda(const CrossEntropyPartArgs& args) {
  const OpLaunch launch("cross_entropy_part",
                        {&args.logits, &args.labels, &args.statistics, &args.losses, &args.dlogits});
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "cross_entropy_part", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "cross_entropy_part", [&]<class G>() {
      const PartRows<T> rows = rows_of_part<T>(args.logits, args.labels, args.first);
      G* gradients = args.dlogits.defined() ? args.dlogits.data<G>() : nullptr;
      const bool wide = rows_are_wide<T>(rows.logits, rows.width, rows.width) &&
                        reinterpret_cast<std::uintptr_t>(gradients) % 16 == 0;
      launch(wide ? part_loss_kernel<T, G, true> : part_loss_kernel<T, G, false>,
             strided_grid(launch.device(), rows.rows, 1, 4, 4), kThreads, 0, rows,
             static_cast<const float*>(args.statistics.data<float>()), args.statistics.size(0) / rows.rows,
             args.losses.data<float>(), gradients, args.grad_scale);
    });
  });
}

void own_rows_cuda(const OwnRowsArgs& args) {
  const OpLaunch launch("own_rows", {&args.ids, &args.rows, &args.factors});
  launch(own_rows_kernel, strided_grid(launch.device(), args.ids.numel(), kThreads, 8), kThreads, 0,
         static_cast<const std::int32_t*>(args.ids.data<std::int32_t>()), args.ids.numel(), args.first, args.count,
         args.rows.data<std::int32_t>(), args.factors.data<float>());
}

QUENCH_CUDA_KERNEL(logits_statistics_slot, logits_statistics_cuda);
QUENCH_CUDA_KERNEL(cross_entropy_part_slot, cross_entropy_part_cuda);
QUENCH_CUDA_KERNEL(own_rows_slot, own_rows_cuda);

}  // namespace
}  // namespace quench::cuda
