#include "train/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/system/check.h"
#include "core/system/file.h"
#include "train/report/html.h"
#include "train/report/line_chart.h"
#include "train/report/page.h"
#include "train/report/report_facts.h"
#include "train/report/report_tables.h"

namespace quench {
namespace {

// Differ always, without information.
constexpr std::array<std::string_view, 9> kOfEveryRunItsOwn = {
    "run.name",      "run.folder", "data.cache", "checkpoint.folder", "metrics.folder",
    "export.folder", "process",    "host",       "checkpoint.resume"};

using Column = std::vector<std::string>;  // per run

std::string row(const std::string& name, const Column& values, const char* cell_class) {
  std::string html = "<tr><td class=\"key\">" + escape_html(name) + "</td>";
  for (const std::string& value : values)
    html += fmt::format("<td class=\"{}\">{}</td>", cell_class, escape_html(value));
  return html + "</tr>";
}

std::string table(std::span<const RunData> runs, const std::string& rows) {
  if (rows.empty()) return "";
  std::string html = "<div class=\"panel\"><table><tr><th></th>";
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<th><span class=\"s{}\">\xE2\x96\xA0</span> {}</th>", i, escape_html(runs[i].name));
  return html + "</tr>" + rows + "</table></div>\n";
}

Curve shown(const Curve& curve, bool averaged) {
  if (!averaged || curve.size() < kMinPointsToSmooth) return curve;
  return smooth(curve, (curve.back().x - curve.front().x) * kSmoothShare);
}

std::string chart(std::span<const RunData> runs, const ChartOptions& options, const std::string& id,
                  const std::function<Curve(const RunData&)>& curve, bool few_points = false) {
  std::vector<ChartSeries> series;
  for (std::size_t i = 0; i < runs.size(); ++i)
    series.push_back({.label = runs[i].name,
                      .points = curve(runs[i]),
                      .color = static_cast<int>(i),
                      .look = few_points ? ChartSeries::Look::dotted : ChartSeries::Look::line});
  return render_chart(options, series, id);
}

std::string charts(std::span<const RunData> runs) {
  const auto of = [](const char* key, bool averaged = false, double factor = 1) {
    return [=](const RunData& run) {
      Curve curve = shown(run.curve(key), averaged);
      for (Point& point : curve) point.y *= factor;
      return curve;
    };
  };
  std::string html;
  html += chart(runs, {.title = "Training loss", .unit = "nats per token, averaged", .log_switch = true}, "loss",
                of("loss", true));
  html += chart(
      runs, {.title = "Validation loss", .unit = "nats per token", .log_switch = true}, "validation",
      [](const RunData& run) { return run.validation_loss(); }, true);
  html += chart(runs, {.title = "Gradient norm", .unit = "averaged", .log_switch = true, .from_zero = true}, "norm",
                of("grad_norm", true));
  html += chart(runs, {.title = "Learning rate", .from_zero = true}, "rate", of("lr"));
  html += chart(runs, {.title = "Throughput", .unit = "tokens per second", .from_zero = true}, "throughput",
                of("tokens_per_second", true));
  html +=
      chart(runs, {.title = "Model FLOPs utilization", .unit = "%", .from_zero = true}, "mfu", of("mfu", true, 100));
  html += chart(runs, {.title = "Peak memory", .unit = "GiB per device", .from_zero = true}, "memory",
                of("memory_bytes", false, 1.0 / (1 << 30)));
  return html.empty() ? "" : "<div class=\"charts\">\n" + html + "</div>\n";
}

std::string figures(std::span<const RunData> runs) {
  std::string rows;
  const auto add = [&](const std::string& name, const std::function<std::string(const RunData&)>& value) {
    Column values;
    for (const RunData& run : runs) values.push_back(value(run));
    if (std::ranges::any_of(values, [](const std::string& text) { return !text.empty(); }))
      rows += row(name, values, "number");
  };
  const auto positive = [](double value, const std::function<std::string(double)>& format) {
    return value > 0 && value < 9e15 ? format(value) : std::string();
  };
  const auto count = [](double value) { return format_count(std::llround(value)); };
  add("Steps", [&](const RunData& run) {
    if (run.last_step == 0) return std::string();
    const bool known = run.total_steps > 0;
    return format_count(run.last_step) + (known ? " of " + format_count(run.total_steps) : "");
  });
  add("Last training loss", [](const RunData& run) {
    const Point* last = last_value(run.curve("loss"));
    return last == nullptr ? std::string() : format_value(last->y);
  });
  const auto validation = [](const RunData& run, bool best) {
    const Curve curve = run.validation_loss();
    const Point* found = last_value(curve);
    for (const Point& point : curve)
      if (best && std::isfinite(point.y) && point.y < found->y) found = &point;
    if (found == nullptr) return std::string();
    const std::string perplexity = run.perplexity_of(found->y);
    return fmt::format("{}{} at {}", format_value(found->y), perplexity.empty() ? "" : " (" + perplexity + ")",
                       format_count(std::llround(found->x)));
  };
  add("Last validation loss", [&](const RunData& run) { return validation(run, false); });
  add("Best validation loss", [&](const RunData& run) { return validation(run, true); });
  add("Tokens seen (trained)", [&](const RunData& run) {
    const Point* last = last_value(run.curve("tokens_seen"));
    return last == nullptr ? std::string() : positive(last->y, count);
  });
  add("Tokens per second (all, padding too), median",
      [&](const RunData& run) { return positive(median(run.curve("tokens_per_second")), count); });
  add("MFU, median", [&](const RunData& run) {
    return positive(median(run.curve("mfu")), [](double share) { return fmt::format("{:.1f}%", share * 100); });
  });
  add("Peak memory", [&](const RunData& run) {
    return positive(maximum(run.curve("memory_bytes")),
                    [](double bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); });
  });
  add("Wall time", [&](const RunData& run) {
    return positive(run.last_time - run.first_time, [](double seconds) { return format_duration(seconds); });
  });
  add("Non-finite steps", [](const RunData& run) {
    return run.nonfinite_steps.empty() ? std::string()
                                       : format_count(static_cast<std::int64_t>(run.nonfinite_steps.size()));
  });
  return table(runs, rows);
}

// One row per differing leaf; missing ones are empty.
std::string differences(std::span<const RunData> runs, const std::function<const Json&(const RunData&)>& object) {
  std::vector<std::string> names;  // by first appearance
  std::map<std::string, Column> values;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [name, value] : flat_values(object(runs[i]))) {
      const auto [place, added] = values.try_emplace(name, runs.size());
      if (added) names.push_back(name);
      place->second[i] = value;
    }
  std::string rows;
  for (const std::string& name : names) {
    const Column& column = values[name];
    const bool same = std::ranges::all_of(column, [&](const std::string& value) { return value == column.front(); });
    if (!same && std::ranges::find(kOfEveryRunItsOwn, name) == kOfEveryRunItsOwn.end())
      rows += row(name, column, "data");
  }
  return table(runs, rows);
}

std::string facts(std::span<const RunData> runs) {
  std::vector<std::string> names;
  std::map<std::string, Column> values;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [name, value] : run_facts(runs[i])) {
      const auto [place, added] = values.try_emplace(name, runs.size());
      if (added) names.push_back(name);
      place->second[i] = value;
    }
  std::string rows;
  for (const std::string& name : names) rows += row(name, values[name], "data");
  return table(runs, rows);
}

}  // namespace

std::string render_comparison(std::span<const RunData> runs) {
  std::string title;
  std::vector<std::string> notes;
  for (const RunData& run : runs) {
    title += (title.empty() ? "" : ", ") + run.name;
    for (const std::string& note : run.notes) notes.push_back(run.name + ": " + note);
  }
  const std::string same = "<div class=\"panel empty\">No setting differs.</div>\n";
  std::string settings = differences(runs, [](const RunData& run) -> const Json& { return run.config; });
  if (settings.empty()) settings = same;
  return render_page({.title = title, .lead = fmt::format("{} runs compared", runs.size()), .notes = notes},
                     {{"figures", "Final figures", figures(runs)},
                      {"curves", "Curves", charts(runs)},
                      {"runs", "Runs", facts(runs)},
                      {"settings", "Settings that differ", settings},
                      {"environment", "Environments that differ",
                       differences(runs, [](const RunData& run) -> const Json& { return run.environment; })}});
}

std::vector<RunData> write_comparison(std::span<const std::filesystem::path> folders,
                                      const std::filesystem::path& output) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, folders.size() >= 2 && folders.size() <= kMaxComparedRuns,
                  "{} run folders: between 2 and {} can be compared", folders.size(), kMaxComparedRuns);
  std::set<std::filesystem::path> seen;
  std::map<std::string, int> names;
  std::vector<RunData> runs;
  for (const std::filesystem::path& folder : folders) {
    runs.push_back(load_run(folder));
    std::error_code ignored;
    QUENCH_CHECK_AS(ErrorCode::bad_config, seen.insert(std::filesystem::weakly_canonical(folder, ignored)).second,
                    "run folder {} is named twice", folder.string());
    ++names[runs.back().name];
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (names[runs[i].name] > 1) runs[i].name = folders[i].string();
  write_file_atomically(output, render_comparison(runs));
  return runs;
}

}  // namespace quench
