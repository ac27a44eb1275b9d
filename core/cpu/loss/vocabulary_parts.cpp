#include "core/ops/loss/vocabulary_parts.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

template <class T>
float largest_logit(const T* row, std::int64_t width) {
  F32 best = broadcast(-INFINITY);
  for_vectors(width, [&](std::int64_t i, auto count) {
    F32 value = load(row + i, count);
    if (count < kLanes) value = select(lane_numbers() < static_cast<std::int32_t>(count), value, broadcast(-INFINITY));
    best = max(value, best);  // ignores NaN, which the sum propagates
  });
  return reduce_max(best);
}

template <class T>
float exponential_sum(const T* row, std::int64_t width, float shift) {
  F32 sum{};
  for_vectors(width, [&](std::int64_t i, auto count) {
    F32 term = exp(load(row + i, count) - shift);
    if (count < kLanes) term = select(lane_numbers() < static_cast<std::int32_t>(count), term, F32{});
    sum += term;
  });
  return reduce_add(sum);
}

template <class T>
void row_statistics(const LogitsStatisticsArgs& args) {
  const std::int64_t n = args.logits.size(0), width = args.logits.size(1);
  const T* logits = args.logits.data<T>();
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  float* out = args.statistics.data<float>();
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = logits + i * width;
      const std::int64_t own = labels[i] - args.first;
      float* result = out + i * kLogitsStatistics;
      result[0] = largest_logit(row, width);
      result[1] = exponential_sum(row, width, result[0]);
      result[2] = own >= 0 && own < width ? static_cast<float>(row[own]) : 0.0f;
    }
  });
}

template <class T, class G>
void part_losses(const CrossEntropyPartArgs& args) {
  const std::int64_t n = args.logits.size(0), width = args.logits.size(1), parts = args.statistics.size(0) / n;
  const T* logits = args.logits.data<T>();
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  const float* statistics = args.statistics.data<float>();
  float* losses = args.losses.data<float>();
  G* dlogits = args.dlogits.defined() ? args.dlogits.data<G>() : nullptr;
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      G* gradient = dlogits != nullptr ? dlogits + i * width : nullptr;
      if (labels[i] == kIgnoreLabel) {
        losses[i] = 0.0f;
        if (gradient != nullptr) std::fill(gradient, gradient + width, G(0.0f));
        continue;
      }
      const auto of_part = [&](std::int64_t part) { return statistics + (part * n + i) * kLogitsStatistics; };
      float largest = -INFINITY, sum = 0, label_logit = 0;
      for (std::int64_t part = 0; part < parts; ++part) largest = std::max(largest, of_part(part)[0]);
      for (std::int64_t part = 0; part < parts; ++part) {
        sum += of_part(part)[1] * std::exp(of_part(part)[0] - largest);
        label_logit += of_part(part)[2];
      }
      losses[i] = std::log(sum) + (largest - label_logit);
      if (gradient == nullptr) continue;
      const T* row = logits + i * width;
      const float factor = args.grad_scale / sum;
      const std::int64_t own = labels[i] - args.first;
      const bool is_own = own >= 0 && own < width;
      const float label_gradient = is_own ? std::fma(std::exp(label_logit - largest), factor, -args.grad_scale) : 0.0f;
      for_vectors(width, [&](std::int64_t j, auto count) {
        store(gradient + j, exp(load(row + j, count) - largest) * factor, count);
      });
      if (is_own) gradient[own] = G(label_gradient);
    }
  });
}

void logits_statistics_kernel(const LogitsStatisticsArgs& args) {
  dispatch<float, bfloat16>(args.logits.dtype(), "logits_statistics", [&]<class T>() { row_statistics<T>(args); });
}

void cross_entropy_part_kernel(const CrossEntropyPartArgs& args) {
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "cross_entropy_part", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "cross_entropy_part", [&]<class G>() { part_losses<T, G>(args); });
  });
}

void own_rows_kernel(const OwnRowsArgs& args) {
  const std::int32_t* ids = args.ids.data<std::int32_t>();
  std::int32_t* rows = args.rows.data<std::int32_t>();
  float* factors = args.factors.data<float>();
  for (std::int64_t i = 0; i < args.ids.numel(); ++i) {
    const std::int64_t own = ids[i] - args.first;
    const bool is_own = own >= 0 && own < args.count;
    rows[i] = static_cast<std::int32_t>(is_own ? own : static_cast<std::uint32_t>(ids[i]) % args.count);
    factors[i] = is_own ? 1.0f : 0.0f;
  }
}

QUENCH_CPU_KERNEL(logits_statistics_slot, logits_statistics_kernel);
QUENCH_CPU_KERNEL(cross_entropy_part_slot, cross_entropy_part_kernel);
QUENCH_CPU_KERNEL(own_rows_slot, own_rows_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
