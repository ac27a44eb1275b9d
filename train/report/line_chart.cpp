#include "train/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "train/metrics/step_metrics.h"
#include "train/report/html.h"

namespace quench {
namespace {

// User units; scaled to the column width.
constexpr double kWidth = 640, kHeight = 300;
constexpr double kLeft = 56, kRight = 14, kTop = 26, kBottom = 34;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr std::size_t kBuckets = 500;  // about one per unit
constexpr std::size_t kHoverSpots = 100;
constexpr std::size_t kMaxFlags = 200;

constexpr std::array kMarkKinds = {ChartMark::Kind::resume, ChartMark::Kind::checkpoint, ChartMark::Kind::spike};

const char* mark_class(ChartMark::Kind kind) {
  switch (kind) {
    case ChartMark::Kind::checkpoint: return "checkpoint";
    case ChartMark::Kind::resume: return "resume";
    case ChartMark::Kind::spike: return "spike";
  }
  return "";
}

const char* mark_legend(ChartMark::Kind kind) {
  switch (kind) {
    case ChartMark::Kind::checkpoint: return "checkpoint";
    case ChartMark::Kind::resume: return "resume";
    case ChartMark::Kind::spike: return "spike";
  }
  return "";
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool empty() const { return !(low <= high); }
};

bool drawable(double y, AxisScale scale) {
  return std::isfinite(y) && (scale == AxisScale::linear || y > 0);
}

class ChartView {
 public:
  ChartView(const ChartOptions& options, const std::vector<ChartSeries>& series, AxisScale scale, Range x, Range y)
      : options_(options),
        series_(series),
        scale_(scale),
        x_(x.low, x.high, AxisScale::linear, 7, false),
        y_(scale == AxisScale::linear && options.from_zero ? std::min(0.0, y.low) : y.low, y.high, scale, 5, true) {}

  std::string render() {
    print("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight, escape_html(options_.title));
    axes();
    flags();
    for (const ChartSeries& series : series_) line(series);
    hover();
    marks();  // above hover columns: titles are reachable
    out_ += "</svg>";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  [[nodiscard]] double px(double x) const { return kLeft + kPlotWidth * x_.position(x); }
  [[nodiscard]] double py(double y) const { return kTop + kPlotHeight * (1 - y_.position(y)); }

  void axes() {
    for (const Tick& tick : y_.ticks())
      print(
          "<line class=\"grid\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text class=\"tick\" text-anchor=\"end\" x=\"{:.0f}\" y=\"{:.1f}\">{}</text>",
          kLeft, kLeft + kPlotWidth, py(tick.value), py(tick.value), kLeft - 7, py(tick.value) + 3.5,
          escape_html(tick.label));
    const double floor = kTop + kPlotHeight;
    print("<line class=\"axis\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.0f}\" y2=\"{:.0f}\"/>", kLeft, kLeft + kPlotWidth,
          floor, floor);
    for (const Tick& tick : x_.ticks())
      print(
          "<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.0f}\" y2=\"{:.0f}\"/>"
          "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.0f}\">{}</text>",
          px(tick.value), px(tick.value), floor, floor + 4, px(tick.value), floor + 16, escape_html(tick.label));
    print("<text class=\"tick\" text-anchor=\"end\" x=\"{:.0f}\" y=\"{:.0f}\">step</text>", kLeft + kPlotWidth,
          floor + 29);
  }

  // Along the bottom.
  void flags() {
    const std::size_t stride = options_.flagged.size() / kMaxFlags + 1;
    for (std::size_t i = 0; i < options_.flagged.size(); i += stride)
      print("<path class=\"flag\" d=\"M{:.1f} {:.0f}v-9\"><title>step {}: not finite</title></path>",
            px(options_.flagged[i]), kTop + kPlotHeight, format_step(options_.flagged[i]));
  }

  void marks() {
    for (const ChartMark::Kind kind : kMarkKinds) {
      std::vector<const ChartMark*> all;
      for (const ChartMark& mark : options_.marks)
        if (mark.kind == kind) all.push_back(&mark);
      const std::size_t stride = all.size() / kMaxFlags + 1;
      for (std::size_t i = 0; i < all.size(); i += stride)
        print("<path class=\"mark {}\" d=\"M{:.1f} {:.1f}{}\"><title>step {}: {}</title></path>", mark_class(kind),
              px(all[i]->step), mark_top(kind), mark_shape(kind), format_step(all[i]->step), escape_html(all[i]->text));
    }
  }

  static double mark_top(ChartMark::Kind kind) {
    return kind == ChartMark::Kind::checkpoint ? kTop + kPlotHeight - 4
           : kind == ChartMark::Kind::resume   ? kTop
                                               : kTop - 9;
  }

  static std::string mark_shape(ChartMark::Kind kind) {
    switch (kind) {
      case ChartMark::Kind::checkpoint: return "l4 4l-4 4l-4 -4z";
      case ChartMark::Kind::resume: return fmt::format("v{:.0f}", kPlotHeight);
      case ChartMark::Kind::spike: return "m-5 0h10l-5 8z";
    }
    return {};
  }

  void line(const ChartSeries& series) {
    const char* look = series.look == ChartSeries::Look::faint    ? " faint"
                       : series.look == ChartSeries::Look::dashed ? " dashed"
                                                                  : "";
    const Curve points = decimate(series.points, kBuckets);
    std::string path, dots;
    bool pen_down = false;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point& point = points[i];
      if (!drawable(point.y, scale_)) {
        pen_down = false;
        continue;
      }
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen_down ? "L" : "M", px(point.x), py(point.y));
      // A single value between gaps draws no line.
      const bool alone = !pen_down && (i + 1 == points.size() || !drawable(points[i + 1].y, scale_));
      if (alone || series.look == ChartSeries::Look::dotted)
        fmt::format_to(std::back_inserter(dots), "<circle class=\"dot s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>",
                       series.color, px(point.x), py(point.y));
      pen_down = true;
    }
    if (!path.empty()) print("<path class=\"line s{}{}\" d=\"{}\"/>{}", series.color, look, path, dots);
  }

  static std::string format_step(double step) { return format_count(std::llround(step)); }

  // Invisible adjacent columns with their nearest points' text; CSS shows the one under the pointer.
  void hover() {
    const auto longest =
        std::max_element(series_.begin(), series_.end(),
                         [](const ChartSeries& a, const ChartSeries& b) { return a.points.size() < b.points.size(); });
    const Curve& anchor = longest->points;
    const std::size_t spots = std::min(anchor.size(), kHoverSpots);
    for (std::size_t i = 0; i < spots; ++i) {
      const std::size_t index = spots == 1 ? 0 : i * (anchor.size() - 1) / (spots - 1);
      const double middle = px(anchor[index].x);
      const double left = i == 0 ? kLeft : (middle + px(anchor[(i - 1) * (anchor.size() - 1) / (spots - 1)].x)) / 2;
      const double right = i + 1 == spots ? kLeft + kPlotWidth
                                          : (middle + px(anchor[(i + 1) * (anchor.size() - 1) / (spots - 1)].x)) / 2;
      spot(anchor[index].x, left, right);
    }
  }

  void spot(double x, double left, double right) {
    std::string text = "step " + format_step(x), dots;
    for (const ChartSeries& series : series_) {
      const Point* point = nearest(series.points, x);
      if (point == nullptr || !drawable(point->y, scale_)) continue;
      text += fmt::format("  \xC2\xB7  {} {}", series.label, format_short(point->y));
      if (point->x != x) text += fmt::format(" (step {})", format_step(point->x));
      fmt::format_to(std::back_inserter(dots), "<circle class=\"dot s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>",
                     series.color, px(point->x), py(point->y));
    }
    print(
        "<g class=\"spot\"><rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>"
        "<path class=\"guide\" d=\"M{:.1f} {:.0f}v{:.0f}\"/>{}"
        "<text class=\"readout\" text-anchor=\"end\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text><title>{}</title></g>",
        left, kTop, std::max(right - left, 0.5), kPlotHeight, px(x), kTop, kPlotHeight, dots, kLeft + kPlotWidth,
        kTop - 10, escape_html(text), escape_html(text));
  }

  const ChartOptions& options_;
  const std::vector<ChartSeries>& series_;
  AxisScale scale_;
  Axis x_;
  Axis y_;
  std::string out_;
};

std::string legend(const std::vector<ChartSeries>& series, const std::vector<ChartMark>& marks) {
  // An empty legend keeps its space: adjacent charts align.
  std::string text = "<div class=\"legend\">";
  for (const ChartSeries& entry : series)
    if (series.size() > 1)
      text += fmt::format("<span><i class=\"key s{}{}\"></i>{}</span>", entry.color,
                          entry.look == ChartSeries::Look::faint ? " faint" : "", escape_html(entry.label));
  for (const ChartMark::Kind kind : kMarkKinds)
    if (std::ranges::find(marks, kind, &ChartMark::kind) != marks.end())
      text += fmt::format("<span><i class=\"key mark {}\"></i>{}</span>", mark_class(kind), mark_legend(kind));
  return text + "</div>";
}

}  // namespace

std::string render_chart(const ChartOptions& options, const std::vector<ChartSeries>& series, const std::string& id) {
  Range x, y, positive;
  std::vector<ChartSeries> shown;
  for (const ChartSeries& candidate : series) {
    bool has_value = false;
    for (const Point& point : candidate.points) {
      x.include(point.x);
      if (!std::isfinite(point.y)) continue;
      has_value = true;
      y.include(point.y);
      if (point.y > 0) positive.include(point.y);
    }
    if (has_value) shown.push_back(candidate);
  }
  if (shown.empty()) return "";
  for (const double step : options.flagged) x.include(step);
  for (const ChartMark& mark : options.marks) x.include(mark.step);

  std::string figure = fmt::format("<figure><figcaption><b>{}</b>", escape_html(options.title));
  if (!options.unit.empty()) figure += fmt::format(" <span class=\"unit\">{}</span>", escape_html(options.unit));
  figure += "</figcaption>";
  const bool both = options.log_switch && !positive.empty();
  if (both)
    figure += fmt::format("<input type=\"checkbox\" id=\"{0}-log\"><label for=\"{0}-log\">log scale</label>", id);
  figure += legend(shown, options.marks);
  figure += "<div class=\"linear\">" + ChartView(options, shown, AxisScale::linear, x, y).render() + "</div>";
  if (both)
    figure +=
        "<div class=\"log\">" + ChartView(options, shown, AxisScale::logarithmic, x, positive).render() + "</div>";
  return figure + "</figure>\n";
}

}  // namespace quench
