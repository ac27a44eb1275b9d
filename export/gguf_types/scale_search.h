#pragma once
// Scales of least weighted squared error, x ~ scale * value, for a grid of values.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "export/gguf_types/error_weights.h"

namespace quench {

// Grid of the integers from Low to High.
template <int Low, int High>
struct IntegerGrid {
  static constexpr float kLow = Low, kHigh = High;
  [[nodiscard]] static float nearest(float ratio) noexcept { return nearest_code(ratio, kLow, kHigh); }
};

// Error with the nearest values, which are stored if not null.
template <class Grid, int N>
double scale_error(const float* x, const float* weights, float scale, float* values = nullptr) {
  float each[N];
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  float error = 0;
#pragma omp simd reduction(+ : error)
  for (int i = 0; i < N; ++i) {
    const float value = Grid::nearest(x[i] * inverse);
    const float difference = scale * value - x[i];
    each[i] = value;
    error += weights[i] * difference * difference;
  }
  if (values != nullptr) std::copy(each, each + N, values);
  return error;
}

// Sums of least squares over the nearest values.
struct ScaleSums {
  float xv = 0, vv = 0;
  // Fall of the squared error from that of scale 0.
  [[nodiscard]] double gain() const { return vv > 0 ? static_cast<double>(xv) * xv / vv : 0.0; }
  [[nodiscard]] float scale() const { return xv / vv; }
};

template <class Grid, int N>
ScaleSums scale_sums(const float* x, const float* weights, float inverse) {
  float xv = 0, vv = 0;
#pragma omp simd reduction(+ : xv, vv)
  for (int i = 0; i < N; ++i) {
    const float value = Grid::nearest(x[i] * inverse);
    xv += weights[i] * x[i] * value;
    vv += weights[i] * value * value;
  }
  return {xv, vv};
}

// Signed scale; 0 for values of no size. Starts: the largest value, and the one that weighs most, at either end of the
// grid, moved by up to `reach` of the end in 2 * steps + 1 steps, each with the least squares of its codes; the best is
// repeated while it gains.
template <class Grid, int N>
float find_scale(const float* x, const float* weights, int steps, float reach) {
  float largest = 0, heaviest = 0, weight = 0;
  for (int i = 0; i < N; ++i) {
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
    if (const float square = weights[i] * x[i] * x[i]; square > weight) {
      weight = square;
      heaviest = x[i];
    }
  }
  if (std::abs(largest) < 1e-30f) return 0;
  double most = -1;
  float scale = largest / Grid::kLow;
  const auto take = [&](float inverse) {
    const ScaleSums sums = scale_sums<Grid, N>(x, weights, inverse);
    if (!(sums.gain() > most * (1 + 1e-6)) || !(sums.vv > 0)) return false;
    most = sums.gain();
    scale = sums.scale();
    return true;
  };
  const auto take_around = [&](float peak) {
    for (const float end : {Grid::kLow, Grid::kHigh})
      for (int step = -steps; step <= steps; ++step)
        take(end * (1.0f + reach * static_cast<float>(step) / static_cast<float>(steps)) / peak);
  };
  take_around(largest);
  if (std::abs(heaviest) < 0.8f * std::abs(largest) && std::abs(heaviest) > 1e-30f) take_around(heaviest);
  for (int pass = 0; pass < 4; ++pass)
    if (scale == 0 || !take(1.0f / scale)) break;
  return scale;
}

}  // namespace quench
