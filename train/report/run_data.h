#pragma once
// Run folder data. Untrusted: invalid lines are counted and skipped, missing files leave their part empty.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/metrics/step_metrics.h"
#include "train/report/curve.h"

namespace quench {

struct CheckpointEntry {
  std::string name;  // "step-500"
  std::int64_t step = 0;
  std::uint64_t bytes = 0;
  std::string saved;  // "2026-03-01 12:30 UTC"
};

// One operand of one layer.
struct HealthPoint {
  std::int64_t step = 0;
  bool finite = true;
  double sqnr = 0;                      // dB; NaN: lossless or non-finite
  double saturated = 0, underflow = 0;  // fractions
};
struct HealthSeries {
  std::string layer, operand, format;
  bool stochastic = false;          // rounding
  std::vector<HealthPoint> points;  // by step
};

// Token fraction of each expert, last record.
struct ExpertShares {
  std::int64_t layer = 0;
  std::vector<double> shares;
};

// train/metrics/run_event.h
struct EventEntry {
  std::int64_t step = 0;
  std::string name, message;
};

struct RunData {
  std::string name;  // run.name, or the folder's

  // Per numeric key of metrics.jsonl ("loss", ...), by ascending step; null is NaN; rank_ms gives "rank_ms.0" etc. Of
  // steps logged again after a restart, the later record counts.
  std::map<std::string, Curve, std::less<>> curves;
  std::vector<double> nonfinite_steps;
  std::int64_t last_step = 0;
  std::int64_t total_steps = 0;  // 0: unknown
  double first_time = 0;         // seconds since 1970; 0: none
  double last_time = 0;

  std::vector<EvaluationMetrics> evaluations;
  std::vector<SampleRecord> samples;
  std::vector<HealthSeries> health;   // by first appearance
  std::vector<ExpertShares> experts;  // MoE models
  std::int64_t experts_step = 0;      // step of `experts`
  std::vector<EventEntry> events;
  std::vector<CheckpointEntry> checkpoints;  // by step
  Json config;                               // null if absent
  Json environment;                          // null if absent
  Json recipe;                               // choice for "auto"; null if absent
  Json model;                                // Hugging Face config; null if absent
  std::vector<std::string> notes;            // unreadable parts

  // Empty without records.
  [[nodiscard]] const Curve& curve(std::string_view key) const;
  // "sol_fraction", or "light_share", its name in 0.2.0.
  [[nodiscard]] const Curve& sol_fraction() const;
  // "loss" of evaluations named "validation".
  [[nodiscard]] Curve validation_loss() const;
  // Losses of the last export with a known validation loss; null: none.
  [[nodiscard]] const EvaluationMetrics* exported() const;
  // Validation losses are cross-entropies, unlike those of preference objectives.
  [[nodiscard]] bool has_perplexity() const;
};

// Files of train/metrics/run_files.h, .jsonl from `folder`/metrics or `folder`. Throws not_found for a missing folder
// or one without run files.
[[nodiscard]] RunData load_run(const std::filesystem::path& folder);

// Size of the regular files; links are not followed.
[[nodiscard]] std::uint64_t bytes_in(const std::filesystem::path& folder);

// "2026-03-01 12:30 UTC"
[[nodiscard]] std::string format_utc(double unix_time);

}  // namespace quench
