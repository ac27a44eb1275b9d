#pragma once
// Online softmax of attention.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Unscaled scores, capped at +-cap: `count` elements, a whole number of vectors.
QUENCH_INLINE void cap_scores(float* scores, std::int64_t count, float cap) {
  for (std::int64_t i = 0; i < count; i += kLanes)
    store(scores + i, cap * tanh(load(scores + i, FullVector{}) / cap), FullVector{});
}

// Normalisation of a row of attention, with the head's sink if there is one.
struct RowNormalizer {
  float factor;  // multiplier of the unnormalized output
  float lse;     // natural
};
// `maximum` to base 2, `sum` of weights relative to it, of at least one visible key.
QUENCH_INLINE RowNormalizer normalizer(float maximum, float sum, const float* sink) {
  if (sink == nullptr) return {1.0f / sum, (maximum + std::log2(sum)) * std::numbers::ln2_v<float>};
  const float score = *sink * std::numbers::log2e_v<float>, top = std::max(maximum, score);
  const float decay = std::exp2(maximum - top), total = sum * decay + std::exp2(score - top);
  return {decay / total, (top + std::log2(total)) * std::numbers::ln2_v<float>};
}

// State of one query row; exponents to base 2 of scaled scores.
struct SoftmaxRow {
  float* maximum;
  float* sum;  // per lane
  float* out;  // unnormalized, `padded` columns
  std::int64_t padded;

  // Keys [hidden, visible), at least one; `weights` is zero-filled before them and up to `written`.
  template <class Weight>
  QUENCH_INLINE void fold(const float* scores, std::int64_t hidden, std::int64_t visible, std::int64_t written,
                          float scale, Weight* weights) const {
    const I32 lanes = lane_numbers();
    F32 best = broadcast(-INFINITY);
    for (std::int64_t i = 0; i < written; i += kLanes) {
      F32 s = load(scores + i, FullVector{});
      if (i + kLanes > visible) s = select(lanes < static_cast<std::int32_t>(visible - i), s, broadcast(-INFINITY));
      if (i < hidden) s = select(lanes < static_cast<std::int32_t>(hidden - i), broadcast(-INFINITY), s);
      best = max(s, best);
    }
    const float next = std::max(*maximum, reduce_max(best) * scale);
    F32 total = load(sum, FullVector{});
    if (next != *maximum) {
      const F32 decay = exp2(broadcast(*maximum - next));
      total *= decay;
      for (std::int64_t d = 0; d < padded; d += kLanes)
        store(out + d, load(out + d, FullVector{}) * decay, FullVector{});
      *maximum = next;
    }
    const F32 factor = broadcast(scale), shift = broadcast(-next);
    for (std::int64_t i = 0; i < written; i += kLanes) {
      F32 weight = exp2(fma(load(scores + i, FullVector{}), factor, shift));
      if (i + kLanes > visible) weight = select(lanes < static_cast<std::int32_t>(visible - i), weight, F32{});
      if (i < hidden) weight = select(lanes < static_cast<std::int32_t>(hidden - i), F32{}, weight);
      store(weights + i, weight, FullVector{});
      total += weight;
    }
    store(sum, total, FullVector{});
  }
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
