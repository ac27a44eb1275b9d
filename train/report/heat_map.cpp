#include "train/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "train/report/html.h"

namespace quench {
namespace {

// User units.
constexpr double kMapWidth = 640, kMapLeft = 124, kMapRight = 14, kMapTop = 6, kMapBottom = 34;
constexpr double kMapPlotWidth = kMapWidth - kMapLeft - kMapRight;
constexpr double kMaxPlotHeight = 420, kMinRow = 3, kMaxRow = 16;
constexpr double kLabelHeight = 12;
constexpr std::size_t kLabelBytes = 22;

}  // namespace

std::string render_heat_map(const HeatMapOptions& options, const std::vector<HeatRow>& rows) {
  if (rows.empty() || options.columns == 0) return "";
  const auto count = static_cast<double>(rows.size());
  const double row_height = std::clamp(kMaxPlotHeight / count, kMinRow, kMaxRow);
  const double column_width = kMapPlotWidth / static_cast<double>(options.columns);
  const double floor = kMapTop + row_height * count;
  const auto px = [&](std::size_t column) { return kMapLeft + column_width * static_cast<double>(column); };

  std::string html = fmt::format("<figure><figcaption><b>{}</b>", escape_html(options.title));
  if (!options.unit.empty()) html += fmt::format(" <span class=\"unit\">{}</span>", escape_html(options.unit));
  html += "</figcaption><div class=\"legend\">";
  for (std::size_t shade = 0; shade < options.legend.size(); ++shade)
    html += fmt::format("<span><i class=\"key block h{}\"></i>{}</span>", shade, escape_html(options.legend[shade]));
  html += "</div>";
  const auto print = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(html), format, std::forward<Args>(args)...);
  };
  print("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", kMapWidth, floor + kMapBottom,
        escape_html(options.title));
  // Rows lower than labels: every n-th has one.
  const auto stride = static_cast<std::size_t>(std::ceil(kLabelHeight / row_height));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double top = kMapTop + row_height * static_cast<double>(r);
    if (r % stride == 0)
      print("<text class=\"tick\" text-anchor=\"end\" x=\"{:.0f}\" y=\"{:.1f}\">{}</text>", kMapLeft - 7,
            top + row_height / 2 + 3.5, escape_html(shorten(rows[r].label, kLabelBytes)));
    for (const HeatSpan& span : rows[r].spans)
      print("<rect class=\"h{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}</title></rect>",
            std::clamp(span.shade, 0, kHeatShades - 1), px(span.first), top,
            column_width * static_cast<double>(span.last - span.first + 1), row_height, escape_html(span.text));
  }
  print("<line class=\"axis\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kMapLeft,
        kMapLeft + kMapPlotWidth, floor, floor);
  for (const auto& [column, label] : options.ticks)
    print(
        "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>",
        px(column) + column_width / 2, floor, floor + 4, floor + 16, escape_html(label));
  print("<text class=\"tick\" text-anchor=\"end\" x=\"{:.0f}\" y=\"{:.1f}\">step</text>", kMapLeft + kMapPlotWidth,
        floor + 29);
  return html + "</svg></figure>\n";
}

}  // namespace quench
