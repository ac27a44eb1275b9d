#include "train/report/report_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "train/metrics/step_metrics.h"
#include "train/report/heat_map.h"

namespace quench {
namespace {

// Load over the mean: upper limits of shades; the last shade: no tokens.
constexpr std::array<double, kHeatShades - 2> kLoadLimits{0.25, 0.5, 0.8, 1.25, 2, 4};

int shade_of(double load) {
  if (!(load > 0)) return kHeatShades - 1;
  const auto* limit = std::ranges::find_if(kLoadLimits, [&](double l) { return load < l; });
  return static_cast<int>(limit - kLoadLimits.begin());
}

}  // namespace

std::string render_experts(const RunData& run) {
  std::size_t columns = 0;
  for (const ExpertShares& layer : run.experts) columns = std::max(columns, layer.shares.size());
  std::vector<HeatRow> rows;
  for (const ExpertShares& layer : run.experts) {
    HeatRow row{fmt::format("layer {}", layer.layer), {}};
    for (std::size_t expert = 0; expert < layer.shares.size(); ++expert) {
      const double load = layer.shares[expert] * static_cast<double>(layer.shares.size());
      row.spans.push_back(
          {.first = expert,
           .last = expert,
           .shade = shade_of(load),
           .text = fmt::format("layer {}, expert {}  \xC2\xB7  {:.2f} of the mean load", layer.layer, expert, load)});
    }
    rows.push_back(std::move(row));
  }
  std::vector<std::pair<std::size_t, std::string>> ticks;
  const std::size_t wanted = std::min(kHeatTicks, columns);
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::size_t column = wanted == 1 ? 0 : i * (columns - 1) / (wanted - 1);
    ticks.emplace_back(column, fmt::format("{}", column));
  }
  const std::string html = render_heat_map(
      {.title = "Expert load",
       .unit = fmt::format("tokens of each expert over the mean of its layer, step {}", format_count(run.experts_step)),
       .columns = columns,
       .ticks = std::move(ticks),
       .legend = {"< 0.25", "< 0.5", "< 0.8", "< 1.25", "< 2", "< 4", "more", "none"}},
      rows);
  return html.empty() ? "" : "<div class=\"charts\">\n" + html + "</div>\n";
}

}  // namespace quench
