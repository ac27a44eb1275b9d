#pragma once
// An independent model of a small float: the list of its magnitudes in f64, and rounding by search in that list.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace quench::testing {

class MinifloatReference {
 public:
  // `finite_codes` is the number of finite magnitude codes. One more value, the next step of the grid, follows them:
  // what rounds to it overflows.
  MinifloatReference(int exponent_bits, int mantissa_bits, std::uint32_t finite_codes) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (std::uint32_t code = 0; code <= finite_codes; ++code) {
      const int exponent = static_cast<int>(code >> mantissa_bits);
      const int mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
      const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      values_.push_back(std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits));
    }
  }

  [[nodiscard]] std::uint32_t finite_codes() const { return static_cast<std::uint32_t>(values_.size()) - 1; }
  [[nodiscard]] double value(std::uint32_t code) const { return values_[code]; }

  // Nearest magnitude code, ties to the even code; finite_codes() if the value overflows.
  [[nodiscard]] std::uint32_t nearest(double magnitude) const {
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    if (above == values_.end()) return finite_codes();
    const auto high = static_cast<std::uint32_t>(above - values_.begin());
    if (*above == magnitude) return high;
    const double to_low = magnitude - values_[high - 1], to_high = *above - magnitude;
    if (to_low == to_high) return high % 2 == 0 ? high : high - 1;
    return to_low < to_high ? high - 1 : high;
  }

  // Every value, every midpoint between neighbours, their f32 neighbours, and the limits of f32; no NaN.
  [[nodiscard]] std::vector<float> decision_points() const {
    std::vector<float> points = {0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                                 std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()};
    for (std::size_t i = 0; i < values_.size(); ++i) {
      add_with_neighbours(values_[i], points);
      if (i > 0) add_with_neighbours((values_[i - 1] + values_[i]) / 2, points);
    }
    const std::size_t count = points.size();
    for (std::size_t i = 0; i < count; ++i) points.push_back(-points[i]);
    return points;
  }

 private:
  static void add_with_neighbours(double value, std::vector<float>& points) {
    const auto exact = static_cast<float>(value);
    points.push_back(exact);
    points.push_back(std::nextafterf(exact, std::numeric_limits<float>::infinity()));
    if (exact > 0) points.push_back(std::nextafterf(exact, 0.0f));
  }

  std::vector<double> values_;
};

}  // namespace quench::testing
