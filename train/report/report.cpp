#include "train/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/system/file.h"
#include "train/metrics/run_event.h"
#include "train/report/html.h"
#include "train/report/line_chart.h"
#include "train/report/page.h"
#include "train/report/report_experts.h"
#include "train/report/report_facts.h"
#include "train/report/report_health.h"
#include "train/report/report_tables.h"

namespace quench {
namespace {

constexpr std::size_t kMaxMarkBytes = 200;
constexpr std::uint64_t kMaxAttachedBytes = std::uint64_t{1} << 20;

Curve scaled(Curve curve, double factor) {
  for (Point& point : curve) point.y *= factor;
  return curve;
}

// Raw values, with their average if useful.
std::vector<ChartSeries> with_average(const std::string& label, const Curve& curve, int color) {
  if (curve.size() < kMinPointsToSmooth) return {{.label = label, .points = curve, .color = color}};
  const double steps = (curve.back().x - curve.front().x) * kSmoothShare;
  return {{.label = label, .points = curve, .color = color, .look = ChartSeries::Look::faint},
          {.label = label + ", averaged", .points = smooth(curve, steps), .color = color}};
}

// Against the bf16 peak, and the recipe's own if different.
std::vector<ChartSeries> utilization(const RunData& run) {
  auto series = with_average("MFU", scaled(run.curve("mfu"), 100), 1);
  if (median(run.sol_fraction()) < 0.999 * median(run.curve("mfu")))
    for (ChartSeries& sol : with_average("share of the speed of light", scaled(run.sol_fraction(), 100), 0))
      series.push_back(std::move(sol));
  return series;
}

// Without waiting; for many ranks slowest, fastest and mean. Empty for one rank.
std::vector<ChartSeries> rank_times(const RunData& run) {
  constexpr int kMostLines = 8;
  std::vector<Curve> ranks;
  for (int rank = 0;; ++rank) {
    const Curve& curve = run.curve(fmt::format("rank_ms.{}", rank));
    if (curve.empty()) break;
    ranks.push_back(curve);
  }
  std::vector<ChartSeries> series;
  if (ranks.size() <= kMostLines) {
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
      series.push_back(
          {.label = fmt::format("rank {}", rank), .points = ranks[static_cast<std::size_t>(rank)], .color = rank});
    return series;
  }
  // The world size may change on resume.
  std::map<double, std::vector<double>> times;
  for (const Curve& rank : ranks)
    for (const Point& point : rank) times[point.x].push_back(point.y);
  Curve slowest, fastest, mean;
  for (const auto& [step, of_ranks] : times) {
    const auto [least, most] = std::ranges::minmax(of_ranks);
    slowest.push_back({step, most});
    fastest.push_back({step, least});
    mean.push_back(
        {step, std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0) / static_cast<double>(of_ranks.size())});
  }
  return {{.label = "slowest rank", .points = slowest, .color = 1},
          {.label = "mean", .points = mean, .color = 0},
          {.label = "fastest rank", .points = fastest, .color = 2}};
}

// Checkpoints, resumes and rollbacks; `spikes` adds spikes and skipped steps.
std::vector<ChartMark> marks(const RunData& run, bool spikes) {
  std::vector<ChartMark> marks;
  for (const CheckpointEntry& checkpoint : run.checkpoints)
    marks.push_back(
        {static_cast<double>(checkpoint.step), ChartMark::Kind::checkpoint, "checkpoint " + checkpoint.name});
  for (const EventEntry& event : run.events) {
    const auto step = static_cast<double>(event.step);
    if (event.name == run_events::kResume) marks.push_back({step, ChartMark::Kind::resume, "resumed from here"});
    if (event.name == run_events::kRollback)
      marks.push_back({step, ChartMark::Kind::resume, "rolled back to here: " + shorten(event.message, kMaxMarkBytes)});
    if (spikes && (event.name == run_events::kSpike || event.name == run_events::kSkip))
      marks.push_back({step, ChartMark::Kind::spike, shorten(event.message, kMaxMarkBytes)});
  }
  return marks;
}

std::string charts(const RunData& run) {
  const std::vector<ChartMark> saves = marks(run, false), all = marks(run, true);
  auto loss = with_average("training", run.curve("loss"), 0);
  loss.push_back(
      {.label = "validation", .points = run.validation_loss(), .color = 1, .look = ChartSeries::Look::dotted});
  std::string html;
  html += render_chart(
      {.title = "Loss", .unit = "nats per token", .flagged = run.nonfinite_steps, .marks = all, .log_switch = true},
      loss, "loss");
  html += render_chart(
      {.title = "Gradient norm", .unit = "before clipping", .marks = all, .log_switch = true, .from_zero = true},
      with_average("gradient norm", run.curve("grad_norm"), 3), "norm");
  html += render_chart({.title = "Learning rate", .marks = saves, .from_zero = true},
                       {{.label = "learning rate", .points = run.curve("lr"), .color = 2}}, "rate");
  html += render_chart({.title = "Throughput", .unit = "tokens per second", .marks = saves, .from_zero = true},
                       with_average("tokens/s", run.curve("tokens_per_second"), 0), "throughput");
  html += render_chart({.title = "Model FLOPs utilization", .unit = "%", .marks = saves, .from_zero = true},
                       utilization(run), "mfu");
  html += render_chart({.title = "Peak memory", .unit = "GiB per device", .marks = saves, .from_zero = true},
                       {{.label = "memory", .points = scaled(run.curve("memory_bytes"), 1.0 / (1 << 30)), .color = 3}},
                       "memory");
  html += render_chart({.title = "Step time", .unit = "ms", .marks = saves, .from_zero = true},
                       with_average("step", run.curve("step_ms"), 2), "time");
  html += render_chart({.title = "Time waiting for data", .unit = "% of the step", .marks = saves, .from_zero = true},
                       with_average("waiting", scaled(run.curve("data_share"), 100), 1), "data");
  html += render_chart(
      {.title = "Step time of each process", .unit = "ms, without waiting", .marks = saves, .from_zero = true},
      rank_times(run), "ranks");
  if (!run.curve("communication_share").empty())
    html += render_chart(
        {.title = "Time waiting for other processes", .unit = "% of the step", .marks = saves, .from_zero = true},
        with_average("waiting", scaled(run.curve("communication_share"), 100), 1), "communication");
  return html.empty() ? "" : "<div class=\"charts\">\n" + html + "</div>\n";
}

}  // namespace

std::string render_report(const RunData& run, std::span<const std::filesystem::path> attached) {
  std::vector<PageSection> sections = {
      {"curves", "Curves", charts(run)},
      {"health", "Numerical health", render_health(run)},
      {"experts", "Experts", render_experts(run)},
      {"evaluations", "Evaluations", render_evaluations(run)},
      {"samples", "Generated text", render_samples(run)},
      {"checkpoints", "Checkpoints", render_checkpoints(run)},
      {"config", "Config", render_object(run.config, "general")},
      {"environment", "Environment", render_object(run.environment, "general")},
  };
  for (std::size_t i = 0; i < attached.size(); ++i) {
    const std::string text = read_file(attached[i], kMaxAttachedBytes);
    sections.insert(sections.begin() + static_cast<std::ptrdiff_t>(i),
                    {fmt::format("attached{}", i + 1), shorten(attached[i].stem().string(), kMaxMarkBytes),
                     fmt::format("<pre class=\"attached\">{}</pre>\n", escape_html(text))});
  }
  std::string lead = "Quench training report";
  if (run.first_time > 0)
    lead += fmt::format(" \xC2\xB7 {} to {}", format_utc(run.first_time), format_utc(run.last_time));
  std::string top = render_summary(run);
  if (run.curves.empty())
    top += "<div class=\"panel empty\">No training metrics were recorded in this folder yet.</div>\n";
  return render_page({.title = run.name, .lead = lead, .facts = render_facts(run), .top = top, .notes = run.notes},
                     std::move(sections));
}

RunData write_report(const std::filesystem::path& run_folder, const std::filesystem::path& output,
                     std::span<const std::filesystem::path> attached) {
  RunData run = load_run(run_folder);
  write_file_atomically(output, render_report(run, attached));
  return run;
}

}  // namespace quench
