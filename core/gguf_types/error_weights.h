#pragma once
// Weights of squared errors, and rounding to integer codes and stored scales, in the form that quantizers of blocks
// share.

#include <cmath>
#include <type_traits>

#include "core/gguf_types/group_team.h"
#include "core/number/float_types.h"

namespace quench {

[[nodiscard]] QUENCH_TEAM_INLINE float magnitude(float x) {
  return bit_cast<float>(bit_cast<std::uint32_t>(x) & kF32MagnitudeMask);
}

// Factors of squared errors of a block's groups with mean 1, from their importance: never quite 0, so that all codes
// are determined; 1 where all importance is 0.
template <int N, class Team>
QUENCH_TEAM_INLINE void to_error_weights(const Team& team, float (&weights)[Team::kOwn][N]) {
  constexpr double kLeast = 1e-6;
  double sums[Team::kOwn];
  for (int g = 0; g < Team::kOwn; ++g) {
    sums[g] = 0;
    for (int i = 0; i < N; ++i) sums[g] += static_cast<double>(weights[g][i]);
  }
  const double sum = team.sum(sums);
  const double factor = sum > 0 ? N * Team::kGroups / sum : 0.0;
  for (int g = 0; g < Team::kOwn; ++g)
    for (int i = 0; i < N; ++i)
      weights[g][i] =
          factor > 0 ? static_cast<float>(static_cast<double>(weights[g][i]) * factor * (1 - kLeast) + kLeast) : 1.0f;
}

// Factors of squared errors without importance: 1, or the magnitude, which keeps large values nearer at a small cost to
// the sum of all squared errors. (ggml: the magnitude or its square, by type.)
struct EvenWeights {
  static QUENCH_TEAM_INLINE float of(float) { return 1.0f; }
};
struct MagnitudeWeights {
  static QUENCH_TEAM_INLINE float of(float x) { return magnitude(x); }
};

// Elements and error weights of a block, by groups of N.
template <int N, int Groups, class Plain = EvenWeights>
struct GroupedBlock {
  float x[Groups][N];
  float weights[Groups][N];

  // importance: factors of squared errors, or null for Plain.
  GroupedBlock(const float* values, const float* importance) {
    for (int g = 0; g < Groups; ++g)
      for (int i = 0; i < N; ++i) {
        x[g][i] = values[g * N + i];
        weights[g][i] = importance != nullptr ? importance[g * N + i] : Plain::of(x[g][i]);
      }
    if (importance != nullptr || !std::is_same_v<Plain, EvenWeights>)
      to_error_weights<N>(SerialTeam<Groups>(), weights);
  }
};

// Nearest integer of [low, high], ties to even; low for NaN. Bounds of at most 2^22.
[[nodiscard]] QUENCH_TEAM_INLINE float nearest_code(float x, float low, float high) noexcept {
  constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23: its last bit is 1
  float bounded = x > low ? x : low;
  bounded = bounded < high ? bounded : high;
  return (bounded + kIntegers) - kIntegers;
}

// Nearest f16; the smallest one above 0 if `x` is above 0 and rounds to 0, alike below: the unit of scales that are not
// all 0.
[[nodiscard]] QUENCH_TEAM_INLINE float stored_unit(float x) {
  constexpr float kSmallestHalf = 0x1p-24f;
  if (x == 0) return 0;
  const float stored = static_cast<float>(float16(x));
  if (stored != 0) return stored;
  return x < 0 ? -kSmallestHalf : kSmallestHalf;
}

[[nodiscard]] QUENCH_TEAM_INLINE bool is_finite(float x) {
  return (bit_cast<std::uint32_t>(x) & kF32Infinity) != kF32Infinity;
}
}  // namespace quench
