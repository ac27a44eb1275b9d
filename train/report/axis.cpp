#include "train/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quench {
namespace {

// Smallest of 1, 2, 5 x 10^n >= `rough`.
double nice_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

// "1.50" -> "1.5", "2.0" -> "2"
std::string trimmed(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

}  // namespace

std::string format_short(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return "n/a";
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e-3) {
    const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-9));
    return trimmed(fmt::format("{:.3f}", value / std::pow(10.0, exponent))) + fmt::format("e{}", exponent);
  }
  struct Unit {
    double size;
    const char* name;
  };
  for (const Unit unit : {Unit{1e12, "T"}, Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e4, "k"}})
    if (size >= unit.size * (1 - 1e-9)) {
      const double scaled = value / (unit.size == 1e4 ? 1e3 : unit.size);
      return trimmed(fmt::format("{:.3f}", scaled)) + unit.name;
    }
  return trimmed(fmt::format("{:.{}f}", value, size >= 100 ? 2 : size >= 1 ? 4 : 6));
}

Axis::Axis(double low, double high, AxisScale scale, int tick_count, bool nice)
    : low_(low), high_(high), scale_(scale) {
  if (scale == AxisScale::logarithmic) {
    if (high_ <= low_ * (1 + 1e-9)) {
      low_ /= 1.5;
      high_ *= 1.5;
    }
    if (std::log10(high_ / low_) >= 1.0) {
      add_decade_ticks();
      return;
    }
  } else if (high_ - low_ <= 1e-12 * std::max(std::abs(low_), std::abs(high_))) {
    const double margin = low_ == 0 ? 1.0 : 0.1 * std::abs(low_);
    low_ -= margin;
    high_ += margin;
  }
  add_linear_ticks(tick_count, nice && scale == AxisScale::linear);
}

void Axis::add_linear_ticks(int tick_count, bool nice) {
  const double step = nice_step((high_ - low_) / tick_count);
  if (nice) {
    low_ = std::floor(low_ / step + 1e-9) * step;
    high_ = std::ceil(high_ / step - 1e-9) * step;
  }
  for (double index = std::ceil(low_ / step - 1e-9); index * step <= high_ + 1e-9 * step; ++index) {
    const double value = index * step;
    ticks_.push_back({value, format_short(value)});
  }
}

// Powers of ten; also 2 and 5 times them if readable, or every n-th.
void Axis::add_decade_ticks() {
  const double first = std::floor(std::log10(low_)), last = std::ceil(std::log10(high_));
  const double decades = std::log10(high_ / low_);
  const double stride = std::max(1.0, std::ceil(decades / 6));
  for (double decade = first; decade <= last; decade += stride)
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor != 1.0 && decades > 2.5) continue;
      const double value = factor * std::pow(10.0, decade);
      if (value >= low_ * (1 - 1e-9) && value <= high_ * (1 + 1e-9)) ticks_.push_back({value, format_short(value)});
    }
}

double Axis::position(double value) const {
  if (scale_ == AxisScale::logarithmic) return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

}  // namespace quench
