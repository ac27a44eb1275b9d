#pragma once
// RunRecord: what rank 0 keeps of a run next to its checkpoints: the locks of its folders, config, environment, log,
// metrics, and its validation results. Other ranks have an empty one, whose functions do nothing unless they say so.

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "distributed/ranks.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/checkpoint/run_lock.h"
#include "train/config/resolved_config.h"
#include "train/metrics/metrics_log.h"
#include "train/metrics/run_log.h"
#include "train/record/best_evaluation.h"
#include "train/record/run_identity.h"
#include "train/record/run_model.h"
#include "train/record/validation_losses.h"

namespace quench {

class RunRecord {
 public:
  // Locks run folder and checkpoint folder, and checks the other outputs under the locks. Console text goes to
  // descriptor `console` and to log.txt. `config` and `ranks` must outlive it. Collective. Throws locked for a folder
  // in use, bad_config for an output that would replace another.
  RunRecord(const RunConfig& config, Json environment, int console, const distributed::Ranks& ranks);

  void log(std::string_view lines) const;
  // To log.txt alone: the caller prints it.
  void log_to_file(std::string_view lines) const;
  // Returns the result of `work`; an error of it is also written to log.txt.
  template <class Work>
  auto logging_errors(const Work& work) const {
    try {
      return work();
    } catch (const std::exception& error) {
      log_to_file(fmt::format("error: {}\n", error.what()));
      throw;
    }
  }

  // Locks the metrics folder, unless it is one of the other two, or cannot be written: the metrics then say so. On all
  // ranks, collective.
  void take_metrics_folder(bool resumes);
  // Environment, model part, config and recipe choice. The config is the file with which the run starts again.
  void write_run_files(const ResolvedConfig& chosen, const RunModel& model) const;
  // Without the keys of this start (continuing_config()), once a checkpoint of it exists.
  void write_continuing_config() const;
  // A further destination of metrics, before open_metrics().
  void add_metrics(std::unique_ptr<MetricsSink> sink) { added_.push_back(std::move(sink)); }
  // Opens the metrics files, after `resumed_step` where the run resumes, and marks the resumption of an unfinished run.
  void open_metrics(std::optional<std::int64_t> resumed_step, std::int64_t steps);
  // Metrics and validation losses end at `step`.
  void rewind(std::int64_t step);
  // Throws locked if a lock is no longer this process's.
  void confirm_locks() const;
  // At the run's end: another process may continue it.
  void unlock() noexcept;
  // The lock that guards the checkpoint folder; null on other ranks.
  [[nodiscard]] const RunLock* checkpoint_folder_lock() const noexcept;

  // Adds an evaluation on data.validation to losses and best; true if it is the best. On all ranks.
  bool add_evaluation(const EvaluationMetrics& evaluation);
  // Best evaluation and the step from which the validation data are these, in CheckpointState::extra. On all ranks.
  void store(CheckpointState& state) const;
  // The same from a checkpoint of step `step`; results on other validation data do not count. On all ranks.
  void restore(const CheckpointState& state, const RunIdentity& identity, std::int64_t step);

  [[nodiscard]] const Json& environment() const noexcept { return environment_; }
  [[nodiscard]] MetricsLog& metrics() noexcept { return metrics_; }
  [[nodiscard]] const ValidationLosses& validation() const noexcept { return validation_; }
  [[nodiscard]] const BestEvaluation& best() const noexcept { return best_; }

 private:
  const RunConfig& config_;
  const distributed::Ranks& ranks_;
  Json environment_;
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<RunLock> checkpoint_lock_;  // null: in the run folder
  std::unique_ptr<RunLock> metrics_lock_;     // null: one of these, or no metrics
  std::unique_ptr<RunLog> log_;
  std::vector<std::unique_ptr<MetricsSink>> added_;  // until open_metrics()
  MetricsLog metrics_;
  ValidationLosses validation_;
  std::int64_t validated_from_ = 0;  // step after which evaluations are of the current data.validation
  BestEvaluation best_;
};

}  // namespace quench
