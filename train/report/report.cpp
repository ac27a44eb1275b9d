#include "train/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "train/report/html.h"
#include "train/report/line_chart.h"
#include "train/report/page_style.h"
#include "train/report/report_health.h"
#include "train/report/report_tables.h"

namespace quench {
namespace {

// Averages over a hundredth of the run, where there are enough points for an average to tell more than the points.
constexpr std::size_t kMinPointsToSmooth = 40;

Curve scaled(Curve curve, double factor) {
  for (Point& point : curve) point.y *= factor;
  return curve;
}

// Raw values, and their average where it helps.
std::vector<ChartSeries> with_average(const std::string& label, const Curve& curve, int color) {
  if (curve.size() < kMinPointsToSmooth) return {{.label = label, .points = curve, .color = color}};
  const double steps = (curve.back().x - curve.front().x) / 100;
  return {{.label = label, .points = curve, .color = color, .look = ChartSeries::Look::faint},
          {.label = label + ", averaged", .points = smooth(curve, steps), .color = color}};
}

// Against the bf16 peak, and against the recipe's own peaks where those are others.
std::vector<ChartSeries> utilization(const RunData& run) {
  auto series = with_average("MFU", scaled(run.curve("mfu"), 100), 1);
  if (median(run.curve("light_share")) < 0.999 * median(run.curve("mfu")))
    for (ChartSeries& light : with_average("share of the speed of light", scaled(run.curve("light_share"), 100), 0))
      series.push_back(std::move(light));
  return series;
}

std::string charts(const RunData& run) {
  auto loss = with_average("training", run.curve("loss"), 0);
  loss.push_back(
      {.label = "validation", .points = run.validation_loss(), .color = 1, .look = ChartSeries::Look::dotted});
  std::string html;
  html += render_chart({.title = "Loss", .unit = "nats per token", .flagged = run.nonfinite_steps, .log_switch = true},
                       loss, "loss");
  html += render_chart({.title = "Gradient norm", .unit = "before clipping", .log_switch = true, .from_zero = true},
                       with_average("gradient norm", run.curve("grad_norm"), 3), "norm");
  html += render_chart({.title = "Learning rate", .from_zero = true},
                       {{.label = "learning rate", .points = run.curve("lr"), .color = 2}}, "rate");
  html += render_chart({.title = "Throughput", .unit = "tokens per second", .from_zero = true},
                       with_average("tokens/s", run.curve("tokens_per_second"), 0), "throughput");
  html += render_chart({.title = "Model FLOPs utilization", .unit = "%", .from_zero = true}, utilization(run), "mfu");
  html += render_chart({.title = "Peak memory", .unit = "GiB per device", .from_zero = true},
                       {{.label = "memory", .points = scaled(run.curve("memory_bytes"), 1.0 / (1 << 30)), .color = 3}},
                       "memory");
  html += render_chart({.title = "Step time", .unit = "ms", .from_zero = true},
                       with_average("step", run.curve("step_ms"), 2), "time");
  html += render_chart({.title = "Time waiting for data", .unit = "% of the step", .from_zero = true},
                       with_average("waiting", scaled(run.curve("data_share"), 100), 1), "data");
  return html.empty() ? "" : "<div class=\"charts\">\n" + html + "</div>\n";
}

struct Section {
  std::string id;
  std::string title;
  std::string body;
};

}  // namespace

std::string render_report(const RunData& run) {
  std::vector<Section> sections = {
      {"curves", "Curves", charts(run)},
      {"health", "Numerical health", render_health(run)},
      {"evaluations", "Evaluations", render_evaluations(run)},
      {"samples", "Generated text", render_samples(run)},
      {"checkpoints", "Checkpoints", render_checkpoints(run)},
      {"config", "Config", render_object(run.config, "general")},
      {"environment", "Environment", render_object(run.environment, "general")},
  };
  std::erase_if(sections, [](const Section& section) { return section.body.empty(); });

  const std::string name = escape_html(run.name);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>{} \xC2\xB7 Quench</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{}</h1>\n<p>Quench "
      "training report",
      name, page_style(), name);
  if (run.first_time > 0)
    html += fmt::format(" \xC2\xB7 {} to {}", format_utc(run.first_time), format_utc(run.last_time));
  html += "</p>\n<nav>";
  for (const Section& section : sections) html += fmt::format("<a href=\"#{}\">{}</a>", section.id, section.title);
  html += "</nav>\n</header>\n" + render_summary(run);
  if (run.curves.empty())
    html += "<div class=\"panel empty\">No training metrics were recorded in this folder yet.</div>\n";
  for (const Section& section : sections)
    html += fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n{}</section>\n", section.id, section.title, section.body);
  if (!run.notes.empty()) {
    html += "<footer><p>Not everything in the folder could be read:</p><ul>";
    for (const std::string& note : run.notes) html += "<li>" + escape_html(shorten(note, 500)) + "</li>";
    html += "</ul></footer>\n";
  }
  return html + "</main>\n</body>\n</html>\n";
}

RunData write_report(const std::filesystem::path& run_folder, const std::filesystem::path& output) {
  RunData run = load_run(run_folder);
  write_file_atomically(output, render_report(run));
  return run;
}

}  // namespace quench
