#pragma once
// Lines x ~ scale * code + offset of least weighted squared error, codes 0 to `most`.

#include "core/gguf_types/error_weights.h"

namespace quench {

struct Line {
  float scale = 0, offset = 0;

  // A scale of 0 or less has code 0 alone.
  [[nodiscard]] QUENCH_TEAM_INLINE float inverse() const { return scale > 0 ? 1.0f / scale : 0.0f; }
  [[nodiscard]] QUENCH_TEAM_INLINE float code(float x, float inverse, float most) const {
    return nearest_code((x - offset) * inverse, 0.0f, most);
  }
  [[nodiscard]] QUENCH_TEAM_INLINE float value(float code) const { return scale * code + offset; }
};

// Error with the nearest codes.
template <int N>
QUENCH_TEAM_INLINE float line_error(const float (&x)[N], const float (&weights)[N], Line line, float most) {
  const float inverse = line.inverse();
  float error[1];
  lane_sums<1, N>(
      [&](int i, float(&term)[1]) {
        const float difference = line.value(line.code(x[i], inverse, most)) - x[i];
        term[0] = weights[i] * difference * difference;
      },
      error);
  return error[0];
}

// x rounded to the line's values.
template <int N>
QUENCH_TEAM_INLINE void round_to_line(float (&x)[N], Line line, float most) {
  const float inverse = line.inverse();
  QUENCH_LANE_LOOP
  for (int i = 0; i < N; ++i) x[i] = line.value(line.code(x[i], inverse, most));
}

// Codes of the nearest values.
template <int N>
QUENCH_TEAM_INLINE void put_line_codes(const float (&x)[N], Line line, float most, std::uint8_t* codes) {
  const float inverse = line.inverse();
  for (int i = 0; i < N; ++i) codes[i] = static_cast<std::uint8_t>(static_cast<int>(line.code(x[i], inverse, most)));
}

// Start of a search: codes of (x - low) * (most + stretch) / range - shift.
struct LineStart {
  float stretch, shift;
};

// Starts for 16 codes and more.
struct FineStarts {
  static constexpr int kCount = 14;
  [[nodiscard]] static QUENCH_TEAM_INLINE LineStart at(int i) {
    constexpr LineStart kStarts[kCount] = {{-0.9f, 0},   {-0.6f, 0},   {-0.3f, 0},    {0, 0},       {0.3f, 0},
                                           {0.6f, 0},    {0.9f, 0},    {-0.3f, 0.3f}, {0.1f, 0.3f}, {0.5f, 0.3f},
                                           {0.9f, 0.3f}, {0.4f, 0.5f}, {0.8f, 0.5f},  {1.2f, 0.5f}};
    return kStarts[i];
  }
};

template <int N>
class LineSearch {
 public:
  // `negative`: the offset is 0 or less.
  QUENCH_TEAM_INLINE LineSearch(const float (&x)[N], const float (&weights)[N], float most, bool negative)
      : x_(x), weights_(weights), most_(most), negative_(negative) {
    low_ = high_ = x[0];
    for (int i = 0; i < N; ++i) {
      low_ = x[i] < low_ ? x[i] : low_;
      high_ = x[i] > high_ ? x[i] : high_;
    }
    if (negative && low_ > 0) low_ = 0;
    for (int i = 0; i < N; ++i) {
      const float y = x[i] - low_;
      weight_ += static_cast<double>(weights[i]);
      y_ += static_cast<double>(weights[i] * y);
      yy_ += static_cast<double>(weights[i] * y * y);
    }
  }

  // The best of all starts, from the range of all values and that of the ones with weight: least squares for each
  // start's codes, repeated for the best while it gains.
  template <class Starts>
  [[nodiscard]] QUENCH_TEAM_INLINE Line find() {
    if (high_ <= low_) return {0, low_};
    best_ = {(high_ - low_) / most_, low_};
    least_ = static_cast<double>(line_error<N>(x_, weights_, best_, most_));
    // The range of what weighs something.
    float low = high_, high = low_;
    for (int i = 0; i < N; ++i) {
      if (weights_[i] < kLight) continue;
      low = x_[i] < low ? x_[i] : low;
      high = x_[i] > high ? x_[i] : high;
    }
    if (negative_ && low > 0) low = 0;
    const bool narrower = high - low > 0 && high - low < 0.8f * (high_ - low_);
    constexpr int kPasses = 4;
    const int starts = (narrower ? 2 : 1) * Starts::kCount;
    for (int step = 0; step < starts + kPasses; ++step) {
      float inverse = 1.0f / best_.scale, from = best_.offset, shift = 0;
      if (step < starts) {
        const LineStart start = Starts::at(step % Starts::kCount);
        const bool whole = step < Starts::kCount;
        from = whole ? low_ : low;
        inverse = (most_ + start.stretch) / (whole ? high_ - low_ : high - low);
        shift = start.shift;
      }
      if (!try_codes(inverse, from, shift) && step >= starts) break;
    }
    return best_;
  }

 private:
  static constexpr float kLight = 0.02f;  // share of the mean weight

  // With codes of (x - from) * inverse - shift; whether it is better.
  QUENCH_TEAM_INLINE bool try_codes(float inverse, float from, float shift) {
    float sums[3];  // weighted code, code^2 and code * (x - low_)
    lane_sums<3, N>(
        [&](int i, float(&term)[3]) {
          const float code = nearest_code((x_[i] - from) * inverse - shift, 0.0f, most_);
          const float weighted = weights_[i] * code;
          term[0] = weighted;
          term[1] = weighted * code;
          term[2] = weighted * (x_[i] - low_);
        },
        sums);
    const double w = weight_, c = static_cast<double>(sums[0]), cc = static_cast<double>(sums[1]),
                 cy = static_cast<double>(sums[2]);
    const double determinant = w * cc - c * c;
    double scale = 0, offset = 0;  // from low_
    if (determinant > 1e-5 * w * cc) {
      scale = (w * cy - y_ * c) / determinant;
      offset = (y_ - scale * c) / w;
      if (negative_ && offset + static_cast<double>(low_) > 0) {
        offset = -static_cast<double>(low_);
        scale = (cy - offset * c) / cc;
      }
    } else if (cc > 0) {  // one code
      scale = cy / cc;
    }
    if (!(scale > 0)) return false;
    const double error =
        yy_ - 2 * scale * cy - 2 * offset * y_ + scale * scale * cc + 2 * scale * offset * c + offset * offset * w;
    if (!(error < least_ * (1 - 1e-6))) return false;
    least_ = error;
    best_ = {static_cast<float>(scale), static_cast<float>(offset + static_cast<double>(low_))};
    return true;
  }

  const float (&x_)[N];
  const float (&weights_)[N];
  float most_;
  bool negative_;
  float low_ = 0, high_ = 0;
  double weight_ = 0, y_ = 0, yy_ = 0;
  Line best_;
  double least_ = 0;
};

}  // namespace quench
