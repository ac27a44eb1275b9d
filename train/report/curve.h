#pragma once
// Series over the training step, for charts.

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

// Smoothing span as a fraction of the run, for curves with enough points.
inline constexpr double kSmoothShare = 0.01;
inline constexpr std::size_t kMinPointsToSmooth = 40;

// At most about 2 * buckets points: minimum and maximum of each of `buckets` equal spans of x, in x order, so that
// spikes are kept. A span of gaps stays a gap; first and last points are kept. Short curves are returned unchanged.
[[nodiscard]] Curve decimate(const Curve& curve, std::size_t buckets);

// Two-sided exponential average, decay e per `steps` of x: no lag; one-sided at the ends. Gaps stay gaps and are
// excluded.
[[nodiscard]] Curve smooth(const Curve& curve, double steps);

// Point nearest to x, without gaps; nullptr for a curve without values.
[[nodiscard]] const Point* nearest(const Curve& curve, double x);

// Median without gaps; NaN for no values.
[[nodiscard]] double median(const Curve& curve);
// Maximum without gaps; NaN for no values.
[[nodiscard]] double maximum(const Curve& curve);
// Last point that is not a gap; nullptr for no values.
[[nodiscard]] const Point* last_value(const Curve& curve);

}  // namespace quench
