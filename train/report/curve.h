#pragma once
// Series of points over the step, as charts need them.

#include <cstddef>
#include <limits>
#include <vector>

namespace quench {

struct Point {
  double x = 0;
  double y = 0;  // NaN: a gap
};

using Curve = std::vector<Point>;  // x ascending

inline constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// Charts average over this share of a run, where a curve has enough points for an average to tell more than they do.
inline constexpr double kSmoothShare = 0.01;
inline constexpr std::size_t kMinPointsToSmooth = 40;

// At most about 2 * buckets points with the same look: of each of `buckets` equal spans of x, the lowest and the
// highest point in order of x, so that no spike disappears. A span that holds only gaps stays a gap; the first and the
// last point stay. Curves that are short enough come back as they are.
[[nodiscard]] Curve decimate(const Curve& curve, std::size_t buckets);

// Average with weights that fall exponentially to both sides, by e within `steps` of x: no lag behind the curve, and at
// the ends only the existing side counts. Gaps stay gaps and do not enter the average.
[[nodiscard]] Curve smooth(const Curve& curve, double steps);

// The point nearest to x, skipping gaps; nullptr for a curve without any value.
[[nodiscard]] const Point* nearest(const Curve& curve, double x);

// Median of the values that are not gaps; NaN when there is none.
[[nodiscard]] double median(const Curve& curve);
// Highest of them; NaN when there is none.
[[nodiscard]] double maximum(const Curve& curve);
// The last point that is no gap; nullptr when there is none.
[[nodiscard]] const Point* last_value(const Curve& curve);

}  // namespace quench
