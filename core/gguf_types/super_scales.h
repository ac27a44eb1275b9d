#pragma once
// Scales of two levels, x ~ unit * scale * value: an f16 unit of a super block, signed integer scales of its groups.

#include "core/gguf_types/scale_search.h"

namespace quench {

// Integer scales of a thread's groups.
template <int Own>
struct ScaledGroups {
  float unit = 0;
  int scales[Own] = {};
  double error = 0;  // the block's

  [[nodiscard]] QUENCH_TEAM_INLINE float scale(int own) const { return unit * static_cast<float>(scales[own]); }
};

// Scales from Low to High. Initial scales of each group are refined by least squares; then come neighbouring integers,
// and least squares of the unit, whose starts let the largest scale be Low and less.
template <class Grid, int Size, int Low, int High, class Team>
class SuperScales {
 public:
  static constexpr int kOwn = Team::kOwn;
  using Groups = ScaledGroups<kOwn>;

  QUENCH_TEAM_INLINE SuperScales(const Team& team, const float (&x)[kOwn][Size], const float (&weights)[kOwn][Size],
                                 int steps, float reach)
      : team_(team), x_(x), weights_(weights) {
    for (int g = 0; g < kOwn; ++g) scales_[g] = find_scale<Grid, Size>(x[g], weights[g], steps, reach);
    largest_ = team.fold(0.0f, scales_, [](float a, float b) { return magnitude(b) > magnitude(a) ? b : a; });
  }

  [[nodiscard]] QUENCH_TEAM_INLINE Groups find(int unit_starts) const {
    Groups best;
    if (largest_ == 0) return best;
    for (int start = 0; start < unit_starts; ++start) {
      float unit = stored_unit(largest_ / static_cast<float>(Low + start));
      for (int pass = 0; pass < 3; ++pass) {
        const Groups now = rounded(unit);
        if (best.unit != 0 && !(now.error < best.error)) break;
        best = now;
        const float next = refined(now);
        if (next == unit || !is_finite(next) || next == 0) break;
        unit = next;
      }
    }
    return best;
  }

 private:
  [[nodiscard]] QUENCH_TEAM_INLINE Groups rounded(float unit) const {
    Groups out{.unit = unit};
    double errors[kOwn];
    for (int g = 0; g < kOwn; ++g) {
      const int below = static_cast<int>(nearest_code(scales_[g] / unit - 0.5f, Low, High));
      float least = 0;
      for (int s = below; s <= (below < High ? below + 1 : High); ++s) {
        const float error = scale_error<Grid, Size>(x_[g], weights_[g], unit * static_cast<float>(s));
        if (s > below && !(error < least)) continue;
        least = error;
        out.scales[g] = s;
      }
      errors[g] = static_cast<double>(least);
    }
    out.error = team_.sum(errors);
    return out;
  }

  [[nodiscard]] QUENCH_TEAM_INLINE float refined(const Groups& groups) const {
    double xv[kOwn], vv[kOwn];
    for (int g = 0; g < kOwn; ++g) {
      const float inverse = inverse_scale(groups.unit * static_cast<float>(groups.scales[g]));
      const ScaleSums sums = scale_sums<Grid, Size>(x_[g], weights_[g], inverse);
      const double scale = groups.scales[g];
      xv[g] = scale * static_cast<double>(sums.xv);
      vv[g] = scale * scale * static_cast<double>(sums.vv);
    }
    const double numerator = team_.sum(xv), denominator = team_.sum(vv);
    return denominator > 0 ? stored_unit(static_cast<float>(numerator / denominator)) : 0.0f;
  }

  Team team_;
  const float (&x_)[kOwn][Size];
  const float (&weights_)[kOwn][Size];
  float scales_[kOwn];
  float largest_ = 0;
};

}  // namespace quench
