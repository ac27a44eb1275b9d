#pragma once
// Curves of a report: points over training steps, decimated and smoothed.

#include <cstddef>
#include <limits>
#include <vector>

namespace quench {

struct Point {
  double x = 0;
  double y = 0;  // NaN: a gap
};

using Curve = std::vector<Point>;  // ascending x

inline constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// Smoothing span, of the run.
inline constexpr double kSmoothShare = 0.01;
inline constexpr std::size_t kMinPointsToSmooth = 40;

// About 2 * buckets points: minimum and maximum of each of `buckets` equal spans of x, so that spikes are kept. A span
// of gaps stays a gap; first and last points are kept. Short curves are unchanged.
[[nodiscard]] Curve decimate(const Curve& curve, std::size_t buckets);

// Two-sided exponential average, decay e per `steps` of x: no lag; one-sided at the ends. Gaps are excluded.
[[nodiscard]] Curve smooth(const Curve& curve, double steps);

// Median of all values; NaN if none.
[[nodiscard]] double median(const Curve& curve);
// Maximum of all values; NaN if none.
[[nodiscard]] double maximum(const Curve& curve);
// No gap; nullptr if none.
[[nodiscard]] const Point* last_value(const Curve& curve);

}  // namespace quench
