#include "train/report/report_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "train/metrics/health_log.h"
#include "train/metrics/step_metrics.h"
#include "train/report/heat_map.h"

namespace quench {
namespace {

constexpr std::size_t kMaxColumns = 120;
constexpr std::size_t kMaxHealthRows = 512;

// dB below the dense SQNR: upper limits of shades; the last: non-finite. Warnings begin at the colour change.
constexpr std::array<double, kHeatShades - 2> kHealthLimits{1, 2, 3, 4.5, kMaxSqnrLoss, 12};
static_assert(kHealthLimits[kHeatBad - 1] == kMaxSqnrLoss);

const std::vector<std::string>& legend() {
  static const std::vector<std::string> texts{"< 1", "< 2", "< 3", "< 4.5", "< 6", "< 12", "more", "not finite"};
  return texts;
}

// Unknown formats: e4m3.
double dense_ratio(const HealthSeries& series) {
  const std::optional<ElementFormat> format = element_format_from_string(series.format);
  return recipes::dense_sqnr(format && is_8_bit(*format) ? *format : ElementFormat::e4m3, series.stochastic);
}

// One cell, or equal neighbours.
struct Summary {
  std::int64_t first_step = 0, last_step = 0;
  bool finite = true;
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  double saturated = 0, underflow = 0;

  void add(const HealthPoint& point) {
    if (first_step == 0) first_step = point.step;
    last_step = point.step;
    finite = finite && point.finite;
    if (!std::isfinite(point.sqnr)) return;
    low = std::min(low, point.sqnr);
    high = std::max(high, point.sqnr);
    saturated = std::max(saturated, point.saturated);
    underflow = std::max(underflow, point.underflow);
  }
  void add(const Summary& other) {
    last_step = other.last_step;
    low = std::min(low, other.low);
    high = std::max(high, other.high);
    saturated = std::max(saturated, other.saturated);
    underflow = std::max(underflow, other.underflow);
  }
  [[nodiscard]] int shade(double dense) const {
    if (!finite) return kHeatShades - 1;
    const double loss = dense - low;  // below all limits if lossless
    const auto limit = std::ranges::find_if(kHealthLimits, [&](double l) { return loss < l; });
    return static_cast<int>(limit - kHealthLimits.begin());
  }
  [[nodiscard]] std::string text(const HealthSeries& series) const {
    std::string result = series.layer + "  \xC2\xB7  ";
    result += first_step == last_step
                  ? fmt::format("step {}", format_count(first_step))
                  : fmt::format("steps {} to {}", format_count(first_step), format_count(last_step));
    if (!finite) return result + "  \xC2\xB7  not finite";
    if (!(low <= high)) return result + "  \xC2\xB7  nothing lost";
    result += high - low < 0.05 ? fmt::format("  \xC2\xB7  {:.1f} dB", low)
                                : fmt::format("  \xC2\xB7  {:.1f} to {:.1f} dB", low, high);
    if (saturated > 0) result += fmt::format("  \xC2\xB7  {:.2g}% saturated", saturated * 100);
    if (underflow > 0) result += fmt::format("  \xC2\xB7  {:.2g}% become 0", underflow * 100);
    return result;
  }
};

// One per measured step, or equal shares.
class Columns {
 public:
  explicit Columns(const std::vector<const HealthSeries*>& all) {
    for (const HealthSeries* series : all)
      for (const HealthPoint& point : series->points) steps_.push_back(point.step);
    std::ranges::sort(steps_);
    steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
  }
  [[nodiscard]] std::size_t count() const { return std::min(steps_.size(), kMaxColumns); }
  [[nodiscard]] std::size_t of(std::int64_t step) const {
    const auto index = static_cast<std::size_t>(std::ranges::lower_bound(steps_, step) - steps_.begin());
    return index * count() / steps_.size();
  }
  [[nodiscard]] std::vector<std::pair<std::size_t, std::string>> ticks() const {
    std::vector<std::pair<std::size_t, std::string>> result;
    const std::size_t wanted = std::min(kHeatTicks, count());
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::size_t column = wanted == 1 ? 0 : i * (count() - 1) / (wanted - 1);
      const std::size_t index = (column * steps_.size() + count() - 1) / count();
      result.emplace_back(column, format_count(steps_[index]));
    }
    return result;
  }

 private:
  std::vector<std::int64_t> steps_;
};

HeatRow row_of(const HealthSeries& series, const Columns& columns) {
  std::vector<std::pair<HeatSpan, Summary>> spans;
  const double dense = dense_ratio(series);
  for (auto point = series.points.begin(); point != series.points.end();) {
    const std::size_t column = columns.of(point->step);
    Summary cell;
    for (; point != series.points.end() && columns.of(point->step) == column; ++point) cell.add(*point);
    const int shade = cell.shade(dense);
    if (!spans.empty() && spans.back().first.last + 1 == column && spans.back().first.shade == shade) {
      spans.back().first.last = column;
      spans.back().second.add(cell);
    } else {
      spans.push_back({{.first = column, .last = column, .shade = shade, .text = {}}, cell});
    }
  }
  HeatRow row{short_layer_name(series.layer), {}};
  for (auto& [span, summary] : spans) {
    span.text = summary.text(series);
    row.spans.push_back(std::move(span));
  }
  return row;
}

std::string heat_map(const RunData& run, const std::string& operand, const std::string& title) {
  std::vector<const HealthSeries*> chosen;
  for (const HealthSeries& series : run.health)
    if (series.operand == operand && !series.points.empty() && chosen.size() < kMaxHealthRows)
      chosen.push_back(&series);
  if (chosen.empty()) return "";
  const Columns columns(chosen);
  std::vector<HeatRow> rows;
  for (const HealthSeries* series : chosen) rows.push_back(row_of(*series, columns));
  return render_heat_map({.title = title,
                          .unit = fmt::format("dB of SQNR below the {:.1f} of dense {} values",
                                              dense_ratio(*chosen.front()), chosen.front()->format),
                          .columns = columns.count(),
                          .ticks = columns.ticks(),
                          .legend = legend()},
                         rows);
}

}  // namespace

std::string short_layer_name(const std::string& name) {
  constexpr std::string_view kStack = "layers.";
  const std::size_t stack = name.find(kStack), last = name.rfind('.');
  if (stack == std::string::npos) return name;
  const std::size_t begin = stack + kStack.size(), end = name.find('.', begin);
  if (end == std::string::npos) return name;
  return name.substr(begin, end - begin) + name.substr(last);
}

bool is_poor(const HealthSeries& series, const HealthPoint& point) {
  return !point.finite || dense_ratio(series) - point.sqnr > kMaxSqnrLoss;
}

WorstHealth worst_health(const RunData& run) {
  WorstHealth worst;
  double loss = -std::numeric_limits<double>::infinity();
  for (const HealthSeries& series : run.health)
    for (const HealthPoint& point : series.points) {
      if (!point.finite) return {&series, &point};
      if (const double here = dense_ratio(series) - point.sqnr; here > loss) {
        loss = here;
        worst = {&series, &point};
      }
    }
  return worst;
}

std::string render_health(const RunData& run) {
  std::string html;
  html += heat_map(run, "input", "Inputs");
  html += heat_map(run, "weight", "Weights");
  html += heat_map(run, "output_gradient", "Output gradients");
  return html.empty() ? "" : "<div class=\"charts\">\n" + html + "</div>\n";
}

}  // namespace quench
