#include "train/report/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "train/report/axis.h"
#include "train/report/html.h"
#include "train/report/report_health.h"

namespace quench {
namespace {

constexpr std::size_t kMaxSamples = 20;
constexpr std::size_t kMaxNameBytes = 30;
constexpr std::size_t kMaxSampleBytes = 4000;
constexpr std::size_t kMaxHistoryRows = 100;
constexpr std::size_t kMaxValueBytes = 500;
constexpr std::size_t kMaxRows = 500;

std::string card(const std::string& label, const std::string& value, const std::string& more, bool bad = false) {
  return fmt::format(
      "<div class=\"card{}\"><div class=\"label\">{}</div><div class=\"value\">{}</div><div class=\"more\">{}</div>"
      "</div>\n",
      bad ? " bad" : "", escape_html(label), escape_html(value), escape_html(more));
}

std::string show(const Json& value) {
  return shorten(value.is_string() ? value.as_string() : value.dump(), kMaxValueBytes);
}

// Dotted keys. Arrays and empty objects are leaves.
void flatten(const Json& object, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& rows) {
  for (const auto& [key, value] : object.as_object()) {
    if (rows.size() >= kMaxRows) return;
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object() && !value.as_object().empty())
      flatten(value, path, rows);
    else
      rows.emplace_back(path, show(value));
  }
}

std::string key_value_panel(const std::string& title, const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string html = fmt::format("<details class=\"panel\" open><summary>{}</summary><table>", escape_html(title));
  for (const auto& [key, value] : rows)
    html += fmt::format("<tr><td class=\"key\">{}</td><td class=\"data\">{}</td></tr>", escape_html(key),
                        escape_html(value));
  return html + "</table></details>\n";
}

// One column per value name, by first appearance.
std::string evaluation_table(const std::vector<const EvaluationMetrics*>& rows, bool with_name) {
  std::vector<std::string> columns;
  for (const EvaluationMetrics* row : rows)
    for (const auto& [name, value] : row->values)
      if (std::find(columns.begin(), columns.end(), name) == columns.end() && columns.size() < 50)
        columns.push_back(name);
  std::string html = "<table><tr>";
  if (with_name) html += "<th>evaluation</th>";
  html += "<th class=\"number\">step</th>";
  for (const std::string& column : columns) html += "<th class=\"number\">" + escape_html(column) + "</th>";
  html += "<th class=\"number\">tokens</th><th class=\"number\">seconds</th></tr>";
  for (const EvaluationMetrics* row : rows) {
    html += "<tr>";
    if (with_name) html += "<td>" + escape_html(row->name) + "</td>";
    html += "<td class=\"number\">" + format_count(row->step) + "</td>";
    for (const std::string& column : columns) {
      const auto found = std::find_if(row->values.begin(), row->values.end(),
                                      [&](const auto& value) { return value.first == column; });
      html += "<td class=\"number\">" + (found == row->values.end() ? "" : format_value(found->second)) + "</td>";
    }
    html += fmt::format("<td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
                        row->tokens > 0 ? format_count(row->tokens) : "",
                        std::isfinite(row->seconds) ? fmt::format("{:.1f}", row->seconds) : "");
  }
  return html + "</table>";
}

}  // namespace

std::string format_value(double value) {
  if (!std::isfinite(value)) return "n/a";
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return format_short(value);
  return fmt::format("{:.{}f}", value, size < 10 ? 4 : 2);
}

std::string format_bytes(std::uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (bytes >= std::uint64_t{1} << 30) return fmt::format("{:.2f} GiB", size / (1 << 30));
  if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.1f} MiB", size / (1 << 20));
  return fmt::format("{:.1f} KiB", size / 1024);
}

std::vector<std::pair<std::string, std::string>> flat_values(const Json& object) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (object.is_object()) flatten(object, "", rows);
  return rows;
}

std::string render_summary(const RunData& run) {
  std::string html;
  if (run.last_step > 0) {
    const bool done = run.total_steps > 0 && run.last_step >= run.total_steps;
    html += card("Steps", format_count(run.last_step),
                 run.total_steps == 0 ? ""
                 : done               ? "complete"
                                      : "of " + format_count(run.total_steps));
  }
  if (const Point* loss = last_value(run.curve("loss")))
    html += card("Training loss", format_value(loss->y), "at step " + format_count(std::llround(loss->x)));
  const Curve validation = run.validation_loss();
  const Point* best = nullptr;
  for (const Point& point : validation)
    if (std::isfinite(point.y) && (best == nullptr || point.y < best->y)) best = &point;
  if (best != nullptr) {
    const std::string perplexity = run.perplexity_of(best->y);
    html += card(
        "Best validation loss", format_value(best->y),
        fmt::format("{}{}at step {}", perplexity, perplexity.empty() ? "" : " ", format_count(std::llround(best->x))));
  }
  if (const EvaluationMetrics* exported = run.exported())
    html += card("Exported validation loss", format_value(exported->values.front().second),
                 fmt::format("ppl {} by {}", format_value(std::exp(exported->values.front().second)),
                             exported->name.substr(kExportEvaluation.size())));
  if (const Point* tokens = last_value(run.curve("tokens_seen")); tokens != nullptr && tokens->y > 0)
    html += card("Tokens seen", format_short(tokens->y),
                 format_count(std::llround(tokens->y)) + " trained: without prompts and padding");
  if (const double rate = median(run.curve("tokens_per_second")); rate > 0 && rate < 9e15)
    html += card("Tokens per second", format_count(std::llround(rate)), "median, of all tokens, padding too");
  if (const double tflops = median(run.curve("tflops")); tflops > 0) {
    const double mfu = median(run.curve("mfu"));
    const double sol = median(run.sol_fraction());
    html +=
        card("TFLOP/s per device", format_short(std::round(tflops * 100) / 100),
             sol > 0 && sol < 0.999 * mfu ? fmt::format("MFU {:.1f}%, of light {:.1f}%, median", mfu * 100, sol * 100)
             : mfu > 0                    ? fmt::format("MFU {:.1f}%, median", mfu * 100)
                                          : "median");
  }
  if (const double memory = maximum(run.curve("memory_bytes")); memory > 0 && memory < 1e18) {
    const double share = maximum(run.curve("memory_share"));
    html += card("Peak memory", format_bytes(static_cast<std::uint64_t>(memory)),
                 share > 0 ? fmt::format("{:.0f}% of a device", share * 100) : "");
  }
  if (run.last_time > run.first_time)
    html += card("Wall time", format_duration(run.last_time - run.first_time), "first to last record");
  if (const auto [series, point] = worst_health(run); series != nullptr)
    html += card(
        "Lowest SQNR", point->finite ? fmt::format("{:.1f} dB", point->sqnr) : "not finite",
        fmt::format("{}, {}, step {}", shorten(short_layer_name(series->layer), kMaxNameBytes),
                    series->operand == "output_gradient" ? "gradient" : series->operand, format_count(point->step)),
        is_poor(*series, *point));
  const Point* skipped = last_value(run.curve("skipped_steps"));
  const double skips = skipped != nullptr ? skipped->y : 0;
  if (skips > 0 || !run.nonfinite_steps.empty())
    html += card("Non-finite steps", format_count(static_cast<std::int64_t>(run.nonfinite_steps.size())),
                 skips > 0 ? fmt::format("{} updates skipped", format_short(skips)) : "logged", true);
  return html.empty() ? "" : "<div class=\"cards\">\n" + html + "</div>\n";
}

std::string render_evaluations(const RunData& run) {
  if (run.evaluations.empty()) return "";
  std::vector<std::string> names;
  std::map<std::string, std::vector<const EvaluationMetrics*>> by_name;
  for (const EvaluationMetrics& evaluation : run.evaluations) {
    auto& rows = by_name[evaluation.name];
    if (rows.empty()) names.push_back(evaluation.name);
    rows.push_back(&evaluation);
  }
  if (names.size() > kMaxRows) names.resize(kMaxRows);
  std::vector<const EvaluationMetrics*> latest;
  for (const std::string& name : names) latest.push_back(by_name[name].back());
  std::string html = "<div class=\"panel\">" + evaluation_table(latest, true) + "</div>\n";
  for (const std::string& name : names) {
    auto rows = by_name[name];
    if (rows.size() < 2) continue;
    const std::size_t all = rows.size();
    if (all > kMaxHistoryRows) rows.erase(rows.begin(), rows.end() - kMaxHistoryRows);
    html += fmt::format("<details class=\"panel\"><summary>{}: {} of {} evaluations</summary>{}</details>\n",
                        escape_html(name), rows.size() == all ? "all" : "the last " + format_count(kMaxHistoryRows),
                        format_count(static_cast<std::int64_t>(all)), evaluation_table(rows, false));
  }
  return html;
}

std::string render_samples(const RunData& run) {
  std::string html;
  const std::size_t count = std::min(run.samples.size(), kMaxSamples);
  for (std::size_t i = 0; i < count; ++i) {
    const SampleRecord& sample = run.samples[run.samples.size() - 1 - i];
    html += fmt::format(
        "<div class=\"panel sample\"><div class=\"where\">step {}</div><p><span "
        "class=\"prompt\">{}</span>{}</p></div>\n",
        format_count(sample.step), escape_html(shorten(sample.prompt, kMaxSampleBytes)),
        escape_html(shorten(sample.text, kMaxSampleBytes)));
  }
  return html;
}

std::string render_checkpoints(const RunData& run) {
  if (run.checkpoints.empty()) return "";
  std::string html =
      "<div class=\"panel\"><table><tr><th>checkpoint</th><th class=\"number\">step</th><th class=\"number\">size</th>"
      "<th class=\"number\">saved</th></tr>";
  for (const CheckpointEntry& checkpoint : run.checkpoints)
    html += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
        escape_html(checkpoint.name), format_count(checkpoint.step), format_bytes(checkpoint.bytes),
        escape_html(checkpoint.saved));
  return html + "</table></div>\n";
}

std::string render_object(const Json& object, const std::string& top_level_title) {
  if (!object.is_object() || object.as_object().empty()) return "";
  std::vector<std::pair<std::string, std::string>> loose;
  std::string sections;
  for (const auto& [key, value] : object.as_object()) {
    if (!value.is_object()) {
      loose.emplace_back(key, show(value));
      continue;
    }
    std::vector<std::pair<std::string, std::string>> rows;
    flatten(value, "", rows);
    if (!rows.empty()) sections += key_value_panel(key, rows);
  }
  const std::string first = loose.empty() ? "" : key_value_panel(top_level_title, loose);
  return "<div class=\"panels\">\n" + first + sections + "</div>\n";
}

}  // namespace quench
