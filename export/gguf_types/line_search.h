#pragma once
// Lines x ~ scale * code + offset of least weighted squared error, codes 0 to `most`.

#include <algorithm>
#include <cmath>
#include <span>

#include "export/gguf_types/error_weights.h"

namespace quench {

struct Line {
  float scale = 0, offset = 0;
};

// Error with the nearest codes, which are stored if not null; a scale of 0 or less has code 0 alone.
template <int N>
double line_error(const float* x, const float* weights, Line line, float most, float* codes = nullptr) {
  float each[N];
  const float inverse = line.scale > 0 ? 1.0f / line.scale : 0.0f;
  float error = 0;
#pragma omp simd reduction(+ : error)
  for (int i = 0; i < N; ++i) {
    const float code = nearest_code((x[i] - line.offset) * inverse, 0.0f, most);
    const float difference = line.scale * code + line.offset - x[i];
    each[i] = code;
    error += weights[i] * difference * difference;
  }
  if (codes != nullptr) std::copy(each, each + N, codes);
  return error;
}

// Start of a search: codes of (x - low) * (most + stretch) / range - shift.
struct LineStart {
  float stretch, shift;
};

// Starts for 16 codes and more.
inline constexpr LineStart kLineStarts[] = {{-0.9f, 0},   {-0.6f, 0},   {-0.3f, 0},    {0, 0},       {0.3f, 0},
                                            {0.6f, 0},    {0.9f, 0},    {-0.3f, 0.3f}, {0.1f, 0.3f}, {0.5f, 0.3f},
                                            {0.9f, 0.3f}, {0.4f, 0.5f}, {0.8f, 0.5f},  {1.2f, 0.5f}};

template <int N>
class LineSearch {
 public:
  // `negative`: the offset is 0 or less.
  LineSearch(const float* x, const float* weights, float most, bool negative)
      : x_(x), weights_(weights), most_(most), negative_(negative) {
    low_ = *std::min_element(x, x + N);
    high_ = *std::max_element(x, x + N);
    if (negative) low_ = std::min(low_, 0.0f);
    for (int i = 0; i < N; ++i) {
      const float y = x[i] - low_;
      weight_ += weights[i];
      y_ += weights[i] * y;
      yy_ += weights[i] * y * y;
    }
  }

  // The best of all starts, from the range of all values and that of the ones with weight: least squares for each
  // start's codes, repeated for the best while it gains.
  [[nodiscard]] Line find(std::span<const LineStart> starts) {
    if (high_ <= low_) return {0, low_};
    best_ = {(high_ - low_) / most_, low_};
    least_ = line_error<N>(x_, weights_, best_, most_);
    try_all(starts, low_, high_);
    // The range of what weighs something.
    float low = high_, high = low_;
    for (int i = 0; i < N; ++i) {
      if (weights_[i] < kLight) continue;
      low = std::min(low, x_[i]);
      high = std::max(high, x_[i]);
    }
    if (negative_) low = std::min(low, 0.0f);
    if (high - low > 0 && high - low < 0.8f * (high_ - low_)) try_all(starts, low, high);
    for (int pass = 0; pass < 4; ++pass)
      if (!try_codes(1.0f / best_.scale, best_.offset, 0.0f)) break;
    return best_;
  }

 private:
  static constexpr float kLight = 0.02f;  // share of the mean weight

  void try_all(std::span<const LineStart> starts, float low, float high) {
    for (const LineStart& start : starts) try_codes((most_ + start.stretch) / (high - low), low, start.shift);
  }

  // With codes of (x - from) * inverse - shift; whether it is better.
  bool try_codes(float inverse, float from, float shift) {
    float c = 0, cc = 0, cy = 0;
#pragma omp simd reduction(+ : c, cc, cy)
    for (int i = 0; i < N; ++i) {
      const float code = nearest_code((x_[i] - from) * inverse - shift, 0.0f, most_);
      const float weighted = weights_[i] * code;
      c += weighted;
      cc += weighted * code;
      cy += weighted * (x_[i] - low_);
    }
    const double w = weight_, dc = c, dcc = cc, dcy = cy;
    const double determinant = w * dcc - dc * dc;
    double scale = 0, offset = 0;  // from low_
    if (determinant > 1e-5 * w * dcc) {
      scale = (w * dcy - y_ * dc) / determinant;
      offset = (y_ - scale * dc) / w;
      if (negative_ && offset + low_ > 0) {
        offset = -low_;
        scale = (dcy - offset * dc) / dcc;
      }
    } else if (dcc > 0) {  // one code
      scale = dcy / dcc;
    }
    if (!(scale > 0)) return false;
    const double error =
        yy_ - 2 * scale * dcy - 2 * offset * y_ + scale * scale * dcc + 2 * scale * offset * dc + offset * offset * w;
    if (!(error < least_ * (1 - 1e-6))) return false;
    least_ = error;
    best_ = {static_cast<float>(scale), static_cast<float>(offset + low_)};
    return true;
  }

  const float *x_, *weights_;
  float most_;
  bool negative_;
  float low_ = 0, high_ = 0;
  double weight_ = 0, y_ = 0, yy_ = 0;
  Line best_;
  double least_ = 0;
};

}  // namespace quench
