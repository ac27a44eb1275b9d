#pragma once
// Scales of two levels, x ~ unit * scale * value: an f16 unit of a super block, signed integer scales of its groups.

#include <algorithm>
#include <cmath>

#include "export/gguf_types/bit_layouts.h"
#include "export/gguf_types/block_format.h"
#include "export/gguf_types/scale_search.h"

namespace quench {

struct ScaledBlock {
  float unit = 0;
  int scales[kMostBlockGroups] = {};
  float values[kSuperBlock] = {};  // points of the grid
  double error = 0;
};

// Scales from Low to High. Initial scales of each group are refined by least squares; then come neighbouring integers,
// and least squares of the unit, whose starts let the largest scale be Low and less.
template <class Grid, int Size, int Low, int High>
class SuperScales {
 public:
  static constexpr int kGroups = kSuperBlock / Size;

  SuperScales(const float* x, const float* importance, int steps, float reach) : x_(x) {
    error_weights<kSuperBlock>(importance, weights_);
    for (int g = 0; g < kGroups; ++g) {
      scales_[g] = find_scale<Grid, Size>(x + g * Size, weights_ + g * Size, steps, reach);
      if (std::abs(scales_[g]) > std::abs(largest_)) largest_ = scales_[g];
    }
  }

  [[nodiscard]] ScaledBlock find(int unit_starts) const {
    ScaledBlock best;
    if (largest_ == 0) return best;
    for (int start = 0; start < unit_starts; ++start) {
      float unit = stored_unit(largest_ / static_cast<float>(Low + start));
      for (int pass = 0; pass < 3; ++pass) {
        const ScaledBlock now = rounded(unit);
        if (best.unit != 0 && !(now.error < best.error)) break;
        best = now;
        const float next = refined(now);
        if (next == unit || !std::isfinite(next) || next == 0) break;
        unit = next;
      }
    }
    return best;
  }

 private:
  [[nodiscard]] ScaledBlock rounded(float unit) const {
    ScaledBlock out{.unit = unit};
    for (int g = 0; g < kGroups; ++g) {
      const float *x = x_ + g * Size, *weights = weights_ + g * Size;
      const int below = static_cast<int>(nearest_code(scales_[g] / unit - 0.5f, Low, High));
      double least = INFINITY;
      for (int s = below; s <= std::min(High, below + 1); ++s) {
        const double error = scale_error<Grid, Size>(x, weights, unit * static_cast<float>(s));
        if (!(error < least)) continue;
        least = error;
        out.scales[g] = s;
      }
      out.error += scale_error<Grid, Size>(x, weights, unit * static_cast<float>(out.scales[g]), out.values + g * Size);
    }
    return out;
  }

  [[nodiscard]] float refined(const ScaledBlock& block) const {
    double xv = 0, vv = 0;
    for (int i = 0; i < kSuperBlock; ++i) {
      const double value = static_cast<double>(block.scales[i / Size]) * block.values[i],
                   weighted = weights_[i] * value;
      xv += weighted * x_[i];
      vv += weighted * value;
    }
    return vv > 0 ? stored_unit(static_cast<float>(xv / vv)) : 0.0f;
  }

  const float* x_;
  float weights_[kSuperBlock];
  float scales_[kGroups];
  float largest_ = 0;
};

}  // namespace quench
