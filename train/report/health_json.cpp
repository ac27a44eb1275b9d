#include "train/report/health_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "train/metrics/health_log.h"

namespace quench {
namespace {

constexpr std::size_t kMaxColumns = 120;
constexpr std::size_t kMaxHealthRows = 512;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// dB below the dense SQNR: upper limits of shades.
constexpr std::array<double, 6> kShadeLimits{1, 2, 3, 4.5, kMaxSqnrLoss, 12};
constexpr std::size_t kNonfiniteShade = kShadeLimits.size() + 1;

// Unknown formats: e4m3.
double dense_ratio(const HealthSeries& series) {
  const std::optional<ElementFormat> format = element_format_from_string(series.format);
  return recipes::dense_sqnr(format && is_8_bit(*format) ? *format : ElementFormat::e4m3, series.stochastic);
}

// Equal neighbours of a row.
struct Cell {
  std::size_t first = 0, last = 0;  // columns
  std::int64_t first_step = 0, last_step = 0;
  bool finite = true;
  double low = kInfinity, high = -kInfinity;  // dB; low > high: lossless
  double saturated = 0, underflow = 0;

  void add(const HealthPoint& point) {
    last_step = point.step;
    finite = finite && point.finite;
    if (!std::isfinite(point.sqnr)) return;
    include({.low = point.sqnr, .high = point.sqnr, .saturated = point.saturated, .underflow = point.underflow});
  }
  void append(const Cell& next) {
    last = next.last;
    last_step = next.last_step;
    include(next);
  }
  void include(const Cell& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
    saturated = std::max(saturated, other.saturated);
    underflow = std::max(underflow, other.underflow);
  }
  [[nodiscard]] std::size_t shade(double dense) const {
    if (!finite) return kNonfiniteShade;
    const auto limit = std::ranges::find_if(kShadeLimits, [&](double l) { return dense - low < l; });
    return static_cast<std::size_t>(limit - kShadeLimits.begin());
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
  [[nodiscard]] std::size_t of(std::int64_t step) const {
    const auto index = static_cast<std::size_t>(std::ranges::lower_bound(steps_, step) - steps_.begin());
    return index * count() / steps_.size();
  }
  [[nodiscard]] Json first_steps() const {
    Json list = Json::array();
    for (std::size_t column = 0; column < count(); ++column)
      list.push_back(steps_[(column * steps_.size() + count() - 1) / count()]);
    return list;
  }

 private:
  [[nodiscard]] std::size_t count() const { return std::min(steps_.size(), kMaxColumns); }

  std::vector<std::int64_t> steps_;
};

Json row_json(const HealthSeries& series, const Columns& columns) {
  const double dense = dense_ratio(series);
  std::vector<Cell> cells;
  for (auto point = series.points.begin(); point != series.points.end();) {
    const std::size_t column = columns.of(point->step);
    Cell cell{.first = column, .last = column, .first_step = point->step};
    for (; point != series.points.end() && columns.of(point->step) == column; ++point) cell.add(*point);
    if (!cells.empty() && cells.back().last + 1 == column && cells.back().shade(dense) == cell.shade(dense))
      cells.back().append(cell);
    else
      cells.push_back(cell);
  }
  Json::Array list;
  for (const Cell& cell : cells)
    list.push_back(Json::Array{cell.first, cell.last, cell.shade(dense), cell.first_step, cell.last_step, cell.low,
                               cell.high, cell.saturated, cell.underflow});
  return Json::Array{series.layer, std::move(list)};
}

Json worst_json(const RunData& run) {
  const HealthSeries* worst_series = nullptr;
  const HealthPoint* worst = nullptr;
  double loss = -kInfinity;
  for (const HealthSeries& series : run.health)
    for (const HealthPoint& point : series.points) {
      const double here = point.finite ? dense_ratio(series) - point.sqnr : kInfinity;
      if (!(here > loss)) continue;
      loss = here;
      worst_series = &series;
      worst = &point;
    }
  if (worst == nullptr) return {};
  return Json::Object{{"layer", worst_series->layer}, {"operand", worst_series->operand},
                      {"step", worst->step},          {"sqnr", worst->sqnr},
                      {"finite", worst->finite},      {"poor", loss > kMaxSqnrLoss}};
}

}  // namespace

Json health_json(const RunData& run) {
  Json::Array maps;
  for (const char* operand : {"input", "weight", "output_gradient"}) {
    std::vector<const HealthSeries*> chosen;
    for (const HealthSeries& series : run.health)
      if (series.operand == operand && !series.points.empty() && chosen.size() < kMaxHealthRows)
        chosen.push_back(&series);
    if (chosen.empty()) continue;
    const Columns columns(chosen);
    Json::Array rows;
    for (const HealthSeries* series : chosen) rows.push_back(row_json(*series, columns));
    maps.push_back(Json::Object{{"operand", operand},
                                {"format", chosen.front()->format},
                                {"dense", dense_ratio(*chosen.front())},
                                {"steps", columns.first_steps()},
                                {"rows", std::move(rows)}});
  }
  return Json::Object{{"maps", std::move(maps)}, {"worst", worst_json(run)}};
}

}  // namespace quench
