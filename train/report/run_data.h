#pragma once
// What a run left in its folder, read for the report.
//
// Everything in the folder is untrusted: damaged lines are counted and skipped, missing files leave their part empty,
// and texts are handed on as they are, for the page to escape.

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
  std::uint64_t bytes = 0;  // of all its files
  std::string saved;        // "2026-03-01 12:30 UTC"
};

// What one operand of one layer lost to quantization.
struct HealthPoint {
  std::int64_t step = 0;
  bool finite = true;
  double sqnr = 0;                      // dB; NaN: nothing was lost, or the operand is not finite
  double saturated = 0, underflow = 0;  // shares of the elements
};
struct HealthSeries {
  std::string layer, operand, format;
  bool stochastic = false;          // rounding
  std::vector<HealthPoint> points;  // by step
};

// The share of a layer's tokens that each expert got in the last step on record.
struct ExpertShares {
  std::int64_t layer = 0;
  std::vector<double> shares;
};

// A resume, rollback, skipped step or spike (train/metrics/run_event.h).
struct EventEntry {
  std::int64_t step = 0;
  std::string name, message;
};

struct RunData {
  std::string name;  // the config's run.name, or that of the folder

  // One curve for each numeric key of metrics.jsonl ("loss", "grad_norm", ...), over the step, ascending; null values
  // are NaN; of rank_ms one for each rank, "rank_ms.0" and so on. Where a step was logged again after a restart, the
  // later record counts.
  std::map<std::string, Curve, std::less<>> curves;
  std::vector<double> nonfinite_steps;
  std::int64_t last_step = 0;
  std::int64_t total_steps = 0;  // 0: unknown
  double first_time = 0;         // seconds since 1970, of the first and last record; 0: none
  double last_time = 0;

  std::vector<EvaluationMetrics> evaluations;  // in order of writing
  std::vector<SampleRecord> samples;
  std::vector<HealthSeries> health;          // in order of first appearance
  std::vector<ExpertShares> experts;         // of models with experts
  std::int64_t experts_step = 0;             // the step of `experts`
  std::vector<EventEntry> events;            // in order of writing
  std::vector<CheckpointEntry> checkpoints;  // by step
  Json config;                               // null when there is none
  Json environment;                          // the same
  Json recipe;                               // what recipe.name "auto" became; the same
  Json model;                                // the model's Hugging Face config; the same
  std::vector<std::string> notes;            // what could not be read

  // The curve of a key; empty when no record has it.
  [[nodiscard]] const Curve& curve(std::string_view key) const;
  // The curve of "sol_fraction", or of "light_share", its name before 0.2.
  [[nodiscard]] const Curve& sol_fraction() const;
  // Validation loss over the step: the value "loss" of evaluations named "validation".
  [[nodiscard]] Curve validation_loss() const;
};

// Reads the files that train/metrics/run_files.h names, the .jsonl ones from `folder`/metrics or `folder` itself.
// Throws Error(not_found) when there is no such folder, or nothing in it that a run leaves.
[[nodiscard]] RunData load_run(const std::filesystem::path& folder);

// "2026-03-01 12:30 UTC"
[[nodiscard]] std::string format_utc(double unix_time);

}  // namespace quench
