#include "core/ops/loss/cross_entropy.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Independent accumulators hide the add latency.
constexpr int kRowChains = 4;

template <class T>
float row_max(const T* row, std::int64_t width) {
  F32 best[kRowChains];
  for (F32& b : best) b = broadcast(-INFINITY);
  for_vectors(width, [&](std::int64_t i, auto count) {
    F32 value = load(row + i, count);
    if (count < kLanes) value = select(lane_numbers() < static_cast<std::int32_t>(count), value, broadcast(-INFINITY));
    F32& b = best[i / kLanes % kRowChains];
    b = max(value, b);  // ignores NaN, which the sum propagates
  });
  return reduce_max(max(max(best[0], best[1]), max(best[2], best[3])));
}

template <class T>
float sum_exp(const T* row, std::int64_t width, float shift, float* terms) {
  F32 sums[kRowChains] = {};
  for_vectors(width, [&](std::int64_t i, auto count) {
    F32 term = exp(load(row + i, count) - shift);
    if (count < kLanes) term = select(lane_numbers() < static_cast<std::int32_t>(count), term, F32{});
    if (terms != nullptr) store(terms + i, term, count);
    sums[i / kLanes % kRowChains] += term;
  });
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T, class G>
void rows_loss(const CrossEntropyArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  const T* logits = args.logits.data<T>();
  const std::int32_t* labels = args.labels.data<std::int32_t>();
  float* losses = args.losses.data<float>();
  G* dlogits = args.dlogits.defined() ? args.dlogits.data<G>() : nullptr;
  const float scale = args.grad_scale;
  parallel_ranges(n, n * vocab, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = logits + i * vocab;
      G* gradient = dlogits != nullptr ? dlogits + i * vocab : nullptr;
      const std::int32_t label = labels[i];
      if (label == kIgnoreLabel) {
        losses[i] = 0.0f;
        if (gradient != nullptr) std::fill(gradient, gradient + vocab, G(0.0f));
        continue;
      }
      const float label_logit = row[label];
      const float shift = row_max(row, vocab);
      float* terms = nullptr;
      if constexpr (std::is_same_v<G, float>) terms = gradient;
      const float sum = sum_exp(row, vocab, shift, terms);
      losses[i] = std::log(sum) + (shift - label_logit);
      if (gradient == nullptr) continue;
      const float factor = scale / sum;
      float label_gradient = 0.0f;
      if constexpr (std::is_same_v<G, float>) {
        label_gradient = std::fma(terms[label], factor, -scale);
        for_vectors(vocab,
                    [&](std::int64_t j, auto count) { store(terms + j, load(terms + j, count) * factor, count); });
      } else {
        label_gradient = std::fma(std::exp(label_logit - shift), factor, -scale);
        for_vectors(vocab, [&](std::int64_t j, auto count) {
          store(gradient + j, exp(load(row + j, count) - shift) * factor, count);
        });
      }
      gradient[label] = G(label_gradient);
    }
  });
}

void cross_entropy_kernel(const CrossEntropyArgs& args) {
  const DType gradient = args.dlogits.defined() ? args.dlogits.dtype() : args.logits.dtype();
  dispatch<float, bfloat16>(args.logits.dtype(), "cross_entropy", [&]<class T>() {
    dispatch<float, bfloat16>(gradient, "cross_entropy", [&]<class G>() { rows_loss<T, G>(args); });
  });
}

QUENCH_CPU_KERNEL(cross_entropy_slot, cross_entropy_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
