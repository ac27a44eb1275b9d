#include "train/report/run_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "core/system/utf8.h"
#include "train/metrics/run_event.h"
#include "train/report/health_json.h"
#include "train/report/report_facts.h"

namespace quench {
namespace {

constexpr std::size_t kBuckets = 500;  // charts are about as wide
constexpr std::size_t kMaxMarks = 200;
constexpr std::size_t kMaxRankCurves = 8;
constexpr std::size_t kMaxLeaves = 2000;
constexpr std::size_t kMaxEvaluations = 500, kMaxHistoryRows = 100, kMaxValues = 50;
constexpr std::size_t kMaxSamples = 20;
constexpr std::size_t kMaxMessageBytes = 200, kMaxValueBytes = 500, kMaxSampleBytes = 4000;

// Keys of metrics.jsonl that the page draws, or takes a figure from.
constexpr std::array<std::string_view, 7> kAveragedKeys{"loss",    "grad_norm",  "tokens_per_second",  "mfu",
                                                        "step_ms", "data_share", "communication_share"};
constexpr std::array<std::string_view, 6> kOtherKeys{"lr",          "memory_bytes", "memory_share",
                                                     "tokens_seen", "tflops",       "skipped_steps"};

// Seven digits, more than the page shows.
double rounded(double value) {
  if (!std::isfinite(value)) return value;
  const std::string digits = fmt::format("{:.7g}", value);
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::int64_t step_of(const Point& point) {
  return static_cast<std::int64_t>(point.x);
}

Json points_json(const Curve& curve) {
  Json::Array x, y;
  for (const Point& point : decimate(curve, kBuckets)) {
    x.emplace_back(step_of(point));
    y.emplace_back(rounded(point.y));
  }
  return Json::Object{{"x", std::move(x)}, {"y", std::move(y)}};
}

void add_curve(Json& curves, std::string_view key, const Curve& curve, bool averaged) {
  const Point* last = last_value(curve);
  if (last == nullptr) return;
  Json json = points_json(curve);
  if (averaged && curve.size() >= kMinPointsToSmooth)
    json.set("average", points_json(smooth(curve, (curve.back().x - curve.front().x) * kSmoothShare)));
  json.set("last", Json::Array{step_of(*last), last->y});
  json.set("median", median(curve));
  json.set("maximum", maximum(curve));
  curves.set(key, std::move(json));
}

Json curves_json(const RunData& run) {
  Json curves = Json::object();
  for (const std::string_view key : kAveragedKeys) add_curve(curves, key, run.curve(key), true);
  for (const std::string_view key : kOtherKeys) add_curve(curves, key, run.curve(key), false);
  add_curve(curves, "sol_fraction", run.sol_fraction(), true);
  add_curve(curves, "validation_loss", run.validation_loss(), false);
  return curves;
}

// Without waiting; for many ranks slowest, mean and fastest.
Json ranks_json(const RunData& run) {
  std::vector<Curve> ranks;
  for (int rank = 0; !run.curve(fmt::format("rank_ms.{}", rank)).empty(); ++rank)
    ranks.push_back(run.curve(fmt::format("rank_ms.{}", rank)));
  const bool extremes = ranks.size() > kMaxRankCurves;
  if (extremes) {
    // The world size may change on resume.
    std::map<double, std::vector<double>> times;
    for (const Curve& rank : ranks)
      for (const Point& point : rank) times[point.x].push_back(point.y);
    ranks.assign(3, {});
    for (const auto& [step, of_ranks] : times) {
      const auto [least, most] = std::ranges::minmax(of_ranks);
      const double sum = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
      ranks[0].push_back({step, most});
      ranks[1].push_back({step, sum / static_cast<double>(of_ranks.size())});
      ranks[2].push_back({step, least});
    }
  }
  Json::Array curves;
  for (const Curve& curve : ranks) curves.push_back(points_json(curve));
  return Json::Object{{"extremes", extremes}, {"curves", std::move(curves)}};
}

// Index distance that leaves at most kMaxMarks of `count`.
std::size_t stride_of(std::size_t count) {
  return std::max<std::size_t>(1, (count + kMaxMarks - 1) / kMaxMarks);
}

Json nonfinite_json(const RunData& run) {
  Json::Array steps;
  const std::size_t count = run.nonfinite_steps.size();
  for (std::size_t i = 0; i < count; i += stride_of(count))
    steps.emplace_back(static_cast<std::int64_t>(run.nonfinite_steps[i]));
  return Json::Object{{"total", count}, {"steps", std::move(steps)}};
}

Json events_json(const RunData& run) {
  Json list = Json::array();
  for (const auto name : {run_events::kResume, run_events::kRollback, run_events::kSpike, run_events::kSkip}) {
    std::vector<const EventEntry*> events;
    for (const EventEntry& event : run.events)
      if (event.name == name) events.push_back(&event);
    for (std::size_t i = 0; i < events.size(); i += stride_of(events.size()))
      list.push_back(Json::Array{events[i]->step, name, shorten_utf8(events[i]->message, kMaxMessageBytes)});
  }
  return list;
}

Json evaluation_json(const EvaluationMetrics& evaluation) {
  Json::Array values;
  for (const auto& [name, value] : evaluation.values)
    if (values.size() < kMaxValues) values.push_back(Json::Array{name, value});
  return Json::Object{{"step", evaluation.step},
                      {"values", std::move(values)},
                      {"tokens", evaluation.tokens},
                      {"seconds", evaluation.seconds}};
}

// By first appearance.
Json evaluations_json(const RunData& run) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<const EvaluationMetrics*>> by_name;
  for (const EvaluationMetrics& evaluation : run.evaluations) {
    auto& all = by_name[evaluation.name];
    if (all.empty()) names.push_back(evaluation.name);
    all.push_back(&evaluation);
  }
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(names.size(), kMaxEvaluations); ++i) {
    const auto& all = by_name[names[i]];
    Json::Array rows;
    for (std::size_t row = all.size() - std::min(all.size(), kMaxHistoryRows); row < all.size(); ++row)
      rows.push_back(evaluation_json(*all[row]));
    list.push_back(Json::Object{{"name", names[i]}, {"total", all.size()}, {"rows", std::move(rows)}});
  }
  return list;
}

Json samples_json(const RunData& run) {
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(run.samples.size(), kMaxSamples); ++i) {
    const SampleRecord& sample = run.samples[run.samples.size() - 1 - i];
    list.push_back(Json::Array{sample.step, shorten_utf8(sample.prompt, kMaxSampleBytes),
                               shorten_utf8(sample.text, kMaxSampleBytes)});
  }
  return list;
}

Json experts_json(const RunData& run) {
  Json::Array layers;
  for (const ExpertShares& layer : run.experts)
    layers.push_back(Json::Array{layer.layer, Json::Array(layer.shares.begin(), layer.shares.end())});
  return Json::Object{{"step", run.experts_step}, {"layers", std::move(layers)}};
}

// Arrays and empty objects are leaves; at most `left` of them.
Json outline(const Json& object, std::size_t& left) {
  Json list = Json::array();
  for (const auto& [key, value] : object.as_object()) {
    if (left == 0) break;
    if (value.is_object() && !value.as_object().empty()) {
      list.push_back(Json::Array{key, outline(value, left)});
      continue;
    }
    --left;
    list.push_back(
        Json::Array{key, shorten_utf8(value.is_string() ? value.as_string() : value.dump(), kMaxValueBytes)});
  }
  return list;
}

Json outline(const Json& object) {
  std::size_t left = kMaxLeaves;
  return object.is_object() ? outline(object, left) : Json();
}

}  // namespace

Json run_json(const RunData& run) {
  Json::Array facts, checkpoints, notes;
  for (const auto& [name, text] : run_facts(run)) facts.push_back(Json::Array{name, text});
  for (const CheckpointEntry& entry : run.checkpoints)
    checkpoints.push_back(Json::Array{entry.name, entry.step, entry.bytes, entry.saved});
  for (const std::string& note : run.notes) notes.emplace_back(shorten_utf8(note, kMaxValueBytes));
  Json exported;
  if (const EvaluationMetrics* last = run.exported())
    exported =
        Json::Object{{"method", last->name.substr(kExportEvaluation.size())}, {"loss", last->values.front().second}};
  return Json::Object{{"name", run.name},
                      {"step", run.last_step},
                      {"total_steps", run.total_steps},
                      {"seconds", run.last_time - run.first_time},
                      {"first", format_utc(run.first_time)},
                      {"last", format_utc(run.last_time)},
                      {"facts", std::move(facts)},
                      {"curves", curves_json(run)},
                      {"ranks", ranks_json(run)},
                      {"perplexity", run.has_perplexity()},
                      {"exported", std::move(exported)},
                      {"nonfinite", nonfinite_json(run)},
                      {"events", events_json(run)},
                      {"checkpoints", std::move(checkpoints)},
                      {"health", health_json(run)},
                      {"experts", experts_json(run)},
                      {"evaluations", evaluations_json(run)},
                      {"samples", samples_json(run)},
                      {"config", outline(run.config)},
                      {"environment", outline(run.environment)},
                      {"notes", std::move(notes)}};
}

}  // namespace quench
