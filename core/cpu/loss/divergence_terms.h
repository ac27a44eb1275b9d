#pragma once
// Summands of the divergences of distillation_loss.h, and sums over rows.

#include <cmath>
#include <utility>

#include "core/cpu/row_sum.h"
#include "core/cpu/vector_math.h"
#include "core/ops/loss/distillation_loss.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// log(weight + (1 - weight) e^x) by lane, x <= 0.
QUENCH_INLINE F32 log_mix(float weight, F32 x) {
  const F32 sum = weight + (1.0f - weight) * exp(x);
  F32 result{};
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = std::log(sum[lane]);
  return result;
}

// log of the sum of e^(scale x); -inf for a row of -inf.
template <class T>
float log_sum_exp(const T* row, std::int64_t width, float scale) {
  F32 most = broadcast(-INFINITY);
  RowSum sum;
  const auto values = [&](std::int64_t i, auto count) {
    const F32 x = load(row + i, count) * scale;
    return count < kLanes ? select(lane_numbers() < static_cast<std::int32_t>(count), x, broadcast(-INFINITY)) : x;
  };
  for_vectors(width, [&](std::int64_t i, auto count) { most = max(values(i, count), most); });
  const float largest = reduce_max(most), shift = largest == -INFINITY ? 0.0f : largest;
  for_vectors(width, [&](std::int64_t i, auto count) { sum.add(exp(values(i, count) - shift)); });
  return shift + std::log(sum.value());
}

// Terms of one outcome: log-probabilities a of the teacher, b of the student.
template <Divergence divergence>
struct DivergenceTerms {
  float beta;

  // {summand of D, g of dD/dz = q (g - sum of q g) / T}; forward_kl: g is unused.
  QUENCH_INLINE std::pair<F32, F32> operator()(F32 a, F32 b, F32 p, F32 q) const {
    const F32 zero = {};
    if constexpr (divergence == Divergence::forward_kl) {
      return {select(p == zero, zero, p * (a - b)), zero};
    } else if constexpr (divergence == Divergence::reverse_kl) {
      const F32 g = select(q == zero, zero, b - a);
      return {q * g, g};
    } else {
      // log m from the larger of a and b.
      const F32 d = b - a;
      const F32 from_a = a + log_mix(beta, min(d, zero)), from_b = b + log_mix(1.0f - beta, min(-d, zero));
      const F32 mixed = select(d <= zero, from_a, from_b);
      const F32 g = select(q == zero, zero, (1.0f - beta) * (b - mixed));
      return {beta * select(p == zero, zero, p * (a - mixed)) + q * g, g};
    }
  }
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
