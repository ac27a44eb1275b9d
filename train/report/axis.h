#pragma once
// Chart axes: range, positions, ticks with labels.

#include <string>
#include <vector>

namespace quench {

enum class AxisScale { linear, logarithmic };

struct Tick {
  double value = 0;
  std::string label;
};

class Axis {
 public:
  // [low, high], both finite; low > 0 if logarithmic. An empty range is widened around its value; `nice` extends linear
  // ranges to whole ticks.
  Axis(double low, double high, AxisScale scale, int tick_count, bool nice);

  // 0 at low, 1 at high; outside [0, 1] beyond the range.
  [[nodiscard]] double position(double value) const;
  [[nodiscard]] const std::vector<Tick>& ticks() const noexcept { return ticks_; }
  [[nodiscard]] double low() const noexcept { return low_; }
  [[nodiscard]] double high() const noexcept { return high_; }

 private:
  void add_linear_ticks(int tick_count, bool nice);
  void add_decade_ticks();

  double low_;
  double high_;
  AxisScale scale_;
  std::vector<Tick> ticks_;
};

// 12000 -> "12k", 1.5e6 -> "1.5M", 0.0003 -> "3e-4".
[[nodiscard]] std::string format_short(double value);

}  // namespace quench
