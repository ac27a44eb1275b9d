#include "train/report/curve.h"

#include <algorithm>
#include <cmath>

namespace quench {
namespace {

bool is_gap(const Point& point) {
  return !std::isfinite(point.y);
}

void append_extremes(Curve& result, Curve::const_iterator first, Curve::const_iterator last) {
  if (first == last) return;
  auto low = last, high = last;
  for (auto at = first; at != last; ++at) {
    if (is_gap(*at)) continue;
    if (low == last || at->y < low->y) low = at;
    if (high == last || at->y > high->y) high = at;
  }
  if (low == last) {
    result.push_back(*first);
    return;
  }
  result.push_back(*std::min(low, high));
  if (low != high) result.push_back(*std::max(low, high));
}

// Adds to `result` the exponentially weighted sum of the points up to each, in iterator direction, to `weights` the sum
// of weights.
template <class From, class To, class Weight>
void average_into(From point, From end, double steps, To result, Weight weights) {
  double sum = 0, weight = 0, previous = 0;
  for (; point != end; ++point, ++result, ++weights) {
    if (is_gap(*point)) continue;
    const double keep = weight == 0 ? 0.0 : std::exp(-std::abs(point->x - previous) / steps);
    sum = keep * sum + point->y;
    weight = keep * weight + 1;
    previous = point->x;
    result->y += sum;
    *weights += weight;
  }
}

}  // namespace

Curve decimate(const Curve& curve, std::size_t buckets) {
  if (buckets == 0 || curve.size() <= 2 * buckets + 2) return curve;
  const double start = curve.front().x, width = (curve.back().x - start) / static_cast<double>(buckets);
  Curve result = {curve.front()};
  auto first = curve.begin() + 1;
  const auto end = curve.end() - 1;
  for (std::size_t bucket = 1; bucket <= buckets; ++bucket) {
    const double limit = start + width * static_cast<double>(bucket);
    const auto last =
        bucket == buckets ? end : std::partition_point(first, end, [&](const Point& point) { return point.x < limit; });
    append_extremes(result, first, last);
    first = last;
  }
  result.push_back(curve.back());
  return result;
}

Curve smooth(const Curve& curve, double steps) {
  Curve result = curve;
  std::vector<double> weights(curve.size(), 0.0);
  for (Point& point : result)
    if (!is_gap(point)) point.y = 0;
  average_into(curve.begin(), curve.end(), steps, result.begin(), weights.begin());
  average_into(curve.rbegin(), curve.rend(), steps, result.rbegin(), weights.rbegin());
  for (std::size_t i = 0; i < result.size(); ++i)
    if (!is_gap(result[i])) result[i].y /= weights[i];
  return result;
}

double median(const Curve& curve) {
  std::vector<double> values;
  for (const Point& point : curve)
    if (!is_gap(point)) values.push_back(point.y);
  if (values.empty()) return kGap;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double maximum(const Curve& curve) {
  double result = kGap;
  for (const Point& point : curve)
    if (!is_gap(point) && !(point.y <= result)) result = point.y;
  return result;
}

const Point* last_value(const Curve& curve) {
  const auto at = std::find_if(curve.rbegin(), curve.rend(), [](const Point& point) { return !is_gap(point); });
  return at == curve.rend() ? nullptr : &*at;
}

}  // namespace quench
