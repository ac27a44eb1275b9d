#pragma once
// Integer scales and minima of a super block's groups under two f16 units: x ~ unit * scale * code - minimum_unit *
// minimum of least weighted squared error.

#include "core/gguf_types/line_search.h"

namespace quench {

// Integers of a thread's groups.
template <int Own>
struct AffineGroups {
  float unit = 0, minimum_unit = 0;
  int scales[Own] = {}, minima[Own] = {};
  double error = 0;  // the block's

  [[nodiscard]] QUENCH_TEAM_INLINE Line line(int own) const {
    return {unit * static_cast<float>(scales[own]), -minimum_unit * static_cast<float>(minima[own])};
  }
};

// From initial lines of each group (LineSearch) over neighbouring integers of scale and minimum, and least squares of
// the units. Starts of lines: Starts; of units: the largest scale and minimum over MostScale, times each of Units.
template <int Size, int MostCode, int MostScale, class Starts, class Units, class Team>
class AffineSearch {
 public:
  static constexpr int kOwn = Team::kOwn;
  using Groups = AffineGroups<kOwn>;

  QUENCH_TEAM_INLINE AffineSearch(const Team& team, const float (&x)[kOwn][Size], const float (&weights)[kOwn][Size])
      : team_(team), x_(x), weights_(weights) {
    float scales[kOwn], minima[kOwn];
    for (int g = 0; g < kOwn; ++g) {
      lines_[g] = LineSearch<Size>(x[g], weights[g], MostCode, true).template find<Starts>();
      scales[g] = lines_[g].scale;
      minima[g] = -lines_[g].offset;
    }
    const auto larger = [](float a, float b) { return a < b ? b : a; };
    largest_scale_ = team.fold(0.0f, scales, larger);
    largest_minimum_ = team.fold(0.0f, minima, larger);
  }

  [[nodiscard]] QUENCH_TEAM_INLINE Groups find() const {
    Groups best;
    bool any = false;
    for (int start = 0; start < Units::kCount; ++start) {
      const float share = Units::at(start);
      float unit = stored_unit(largest_scale_ * share / MostScale),
            minimum_unit = stored_unit(largest_minimum_ * share / MostScale);
      for (int pass = 0; pass < 3; ++pass) {
        const Groups now = rounded(unit, minimum_unit);
        if (any && !(now.error < best.error)) break;
        best = now;
        any = true;
        if (!refine(now, unit, minimum_unit)) break;
      }
    }
    return best;
  }

 private:
  static QUENCH_TEAM_INLINE int below(float ratio) {
    return static_cast<int>(nearest_code(ratio - 0.5f, 0, MostScale));
  }

  // Minimum that suits the codes of a line, over the unit.
  [[nodiscard]] QUENCH_TEAM_INLINE int suited_minimum(int g, Line line, float minimum_unit) const {
    const float inverse = line.inverse();
    float sums[2];  // weights, and what the codes exceed x by
    lane_sums<2, Size>(
        [&](int i, float(&term)[2]) {
          term[0] = weights_[g][i];
          term[1] = weights_[g][i] * (line.scale * line.code(x_[g][i], inverse, MostCode) - x_[g][i]);
        },
        sums);
    return below(sums[1] / sums[0] / minimum_unit);
  }

  [[nodiscard]] QUENCH_TEAM_INLINE Groups rounded(float unit, float minimum_unit) const {
    Groups out{.unit = unit, .minimum_unit = minimum_unit};
    double errors[kOwn];
    for (int g = 0; g < kOwn; ++g) {
      const int scale = unit > 0 ? below(lines_[g].scale / unit) : 0,
                own = minimum_unit > 0 ? below(-lines_[g].offset / minimum_unit) : 0;
      // Coarse scales have more neighbours.
      const int first = MostScale < 16 && scale > 0 ? scale - 1 : scale,
                last = unit > 0 && scale < MostScale ? scale + 1 : scale;
      float least = 0;
      bool any = false;
      for (int s = first; s <= last; ++s) {
        const float step = unit * static_cast<float>(s);
        const int suited = minimum_unit > 0 ? suited_minimum(g, {step, lines_[g].offset}, minimum_unit) : 0;
        const int low = suited < own ? suited : own, high = suited < own ? own : suited;
        for (int m = low; m <= (minimum_unit > 0 && high < MostScale ? high + 1 : high); ++m) {
          if (m - suited > 1 && m - own > 1) continue;
          const float error =
              line_error<Size>(x_[g], weights_[g], {step, -minimum_unit * static_cast<float>(m)}, MostCode);
          if (any && !(error < least)) continue;
          any = true;
          least = error;
          out.scales[g] = s;
          out.minima[g] = m;
        }
      }
      errors[g] = static_cast<double>(least);
    }
    out.error = team_.sum(errors);
    return out;
  }

  // Least squares of both units with all integers kept; whether a stored one changes.
  QUENCH_TEAM_INLINE bool refine(const Groups& groups, float& unit, float& minimum_unit) const {
    double aa[kOwn], ab[kOwn], bb[kOwn], ax[kOwn], bx[kOwn];
    for (int g = 0; g < kOwn; ++g) {
      const Line line = groups.line(g);
      const float inverse = line.inverse();
      float sums[5];  // weighted code^2, code, 1, code * x, x
      lane_sums<5, Size>(
          [&](int i, float(&term)[5]) {
            const float w = weights_[g][i], weighted = w * line.code(x_[g][i], inverse, MostCode);
            term[0] = weighted * line.code(x_[g][i], inverse, MostCode);
            term[1] = weighted;
            term[2] = w;
            term[3] = weighted * x_[g][i];
            term[4] = w * x_[g][i];
          },
          sums);
      const double scale = groups.scales[g], minimum = -groups.minima[g];
      aa[g] = scale * scale * static_cast<double>(sums[0]);
      ab[g] = scale * minimum * static_cast<double>(sums[1]);
      bb[g] = minimum * minimum * static_cast<double>(sums[2]);
      ax[g] = scale * static_cast<double>(sums[3]);
      bx[g] = minimum * static_cast<double>(sums[4]);
    }
    const double saa = team_.sum(aa), sab = team_.sum(ab), sbb = team_.sum(bb), sax = team_.sum(ax),
                 sbx = team_.sum(bx);
    const double determinant = saa * sbb - sab * sab;
    double next = 0, next_minimum = 0;
    if (determinant > 1e-9 * saa * sbb) {
      next = (sbb * sax - sab * sbx) / determinant;
      next_minimum = (saa * sbx - sab * sax) / determinant;
    } else if (saa > 0 && sbb == 0) {
      next = sax / saa;
    }
    if (!(next > 0) || next_minimum < 0 || !is_finite(static_cast<float>(next + next_minimum))) return false;
    const float stored = stored_unit(static_cast<float>(next)),
                stored_minimum = stored_unit(static_cast<float>(next_minimum));
    if (stored == unit && stored_minimum == minimum_unit) return false;
    unit = stored;
    minimum_unit = stored_minimum;
    return true;
  }

  Team team_;
  const float (&x_)[kOwn][Size];
  const float (&weights_)[kOwn][Size];
  Line lines_[kOwn];
  float largest_scale_ = 0, largest_minimum_ = 0;
};

}  // namespace quench
