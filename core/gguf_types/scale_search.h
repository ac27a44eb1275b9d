#pragma once
// Scales of least weighted squared error, x ~ scale * value, for a grid of values.

#include "core/gguf_types/error_weights.h"

namespace quench {

// Grid of the integers from Low to High.
template <int Low, int High>
struct IntegerGrid {
  static constexpr float kLow = Low, kHigh = High;
  [[nodiscard]] static QUENCH_TEAM_INLINE float nearest(float ratio) noexcept {
    return nearest_code(ratio, kLow, kHigh);
  }
  // In files, from 0.
  [[nodiscard]] static QUENCH_TEAM_INLINE std::uint8_t code(float ratio) noexcept {
    return static_cast<std::uint8_t>(static_cast<int>(nearest(ratio)) - Low);
  }
};

[[nodiscard]] QUENCH_TEAM_INLINE float inverse_scale(float scale) {
  return scale != 0 ? 1.0f / scale : 0.0f;
}

// Error with the nearest values.
template <class Grid, int N>
QUENCH_TEAM_INLINE float scale_error(const float (&x)[N], const float (&weights)[N], float scale) {
  const float inverse = inverse_scale(scale);
  float error[1];
  lane_sums<1, N>(
      [&](int i, float(&term)[1]) {
        const float difference = scale * Grid::nearest(x[i] * inverse) - x[i];
        term[0] = weights[i] * difference * difference;
      },
      error);
  return error[0];
}

// x rounded to scaled values of the grid.
template <class Grid, int N>
QUENCH_TEAM_INLINE void round_to_scale(float (&x)[N], float scale) {
  const float inverse = inverse_scale(scale);
  QUENCH_LANE_LOOP
  for (int i = 0; i < N; ++i) x[i] = scale * Grid::nearest(x[i] * inverse);
}

// Codes of the nearest values.
template <class Grid, int N>
QUENCH_TEAM_INLINE void put_scaled_codes(const float (&x)[N], float scale, std::uint8_t* codes) {
  const float inverse = inverse_scale(scale);
  for (int i = 0; i < N; ++i) codes[i] = Grid::code(x[i] * inverse);
}

// Sums of least squares over the nearest values.
struct ScaleSums {
  float xv = 0, vv = 0;
  // Fall of the squared error from that of scale 0.
  [[nodiscard]] QUENCH_TEAM_INLINE double gain() const {
    return vv > 0 ? static_cast<double>(xv) * static_cast<double>(xv) / static_cast<double>(vv) : 0.0;
  }
  [[nodiscard]] QUENCH_TEAM_INLINE float scale() const { return xv / vv; }
};

template <class Grid, int N>
QUENCH_TEAM_INLINE ScaleSums scale_sums(const float (&x)[N], const float (&weights)[N], float inverse) {
  float sums[2];
  lane_sums<2, N>(
      [&](int i, float(&term)[2]) {
        const float value = Grid::nearest(x[i] * inverse);
        term[0] = weights[i] * x[i] * value;
        term[1] = weights[i] * value * value;
      },
      sums);
  return {sums[0], sums[1]};
}

// Signed scale; 0 for values of no size. Starts: the largest value, and the one that weighs most, at either end of the
// grid, moved by up to `reach` of the end in 2 * steps + 1 steps, each with the least squares of its codes; the best is
// repeated while it gains.
template <class Grid, int N>
QUENCH_TEAM_INLINE float find_scale(const float (&x)[N], const float (&weights)[N], int steps, float reach) {
  float largest = 0, heaviest = 0, weight = 0;
  for (int i = 0; i < N; ++i) {
    if (magnitude(x[i]) > magnitude(largest)) largest = x[i];
    if (const float square = weights[i] * x[i] * x[i]; square > weight) {
      weight = square;
      heaviest = x[i];
    }
  }
  if (magnitude(largest) < 1e-30f) return 0;
  double most = -1;
  float scale = largest / Grid::kLow;
  const bool two_peaks = magnitude(heaviest) < 0.8f * magnitude(largest) && magnitude(heaviest) > 1e-30f;
  constexpr int kPasses = 4;
  const int each = 2 * steps + 1, starts = (two_peaks ? 4 : 2) * each;
  for (int start = 0; start < starts + kPasses; ++start) {
    float inverse = 0;
    if (start < starts) {
      const int by = start / each;  // the largest at kLow, at kHigh, the heaviest at kLow, at kHigh
      const float end = by % 2 == 0 ? Grid::kLow : Grid::kHigh;
      const float move = reach * static_cast<float>(start % each - steps) / static_cast<float>(steps);
      inverse = end * (1.0f + move) / (by < 2 ? largest : heaviest);
    } else {
      if (scale == 0) break;
      inverse = 1.0f / scale;
    }
    const ScaleSums sums = scale_sums<Grid, N>(x, weights, inverse);
    if (sums.gain() > most * (1 + 1e-6) && sums.vv > 0) {
      most = sums.gain();
      scale = sums.scale();
    } else if (start >= starts) {
      break;
    }
  }
  return scale;
}

}  // namespace quench
