#pragma once
// RunExport: the export at the end of a run, and its validation loss next to that of the trained model.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/evaluation/calibration_data.h"
#include "train/record/run_model.h"
#include "train/record/run_record.h"
#include "train/run/end_report.h"
#include "train/run/export_validation.h"
#include "train/run_export/export_model.h"
#include "train/session/data_setup.h"
#include "train/session/run_session.h"

namespace quench {

class RunExport {
 public:
  // Reads export.calibration on rank 0, so that its errors appear before training. The arguments outlive the export.
  // Collective. Throws as read_calibration_data(), with the key.
  RunExport(RunSession& session, RunRecord& record, const DataSetup& data, const RunModel& model);

  // Writes export.folder after `step` by export.method; auto: RTN, then GPTQ if the validation loss rises notably, the
  // better of which stays. `first_step`: of this start. Averages replace the weights (export.weights): training is
  // over. Collective.
  void write(std::int64_t step, std::int64_t first_step);

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }  // empty: not written
  // Unset: not measured.
  [[nodiscard]] const std::optional<ExportValidation>& validation() const noexcept { return validation_; }

 private:
  [[nodiscard]] const ExportSection& section() const { return *session_.config().export_model; }
  // Averaged weights in place of the last.
  void use_averages();
  // Cross-entropy on the validation data.
  [[nodiscard]] double trained_loss(std::int64_t step, std::int64_t first_step);
  [[nodiscard]] bool is_measured() const { return validation_ && !evaluations_.empty(); }
  // Whether method auto tries the calibrated method; the same on all ranks.
  [[nodiscard]] bool tries_calibration() const;
  // Where it is measured, written only if better than the pass before.
  ModelFolderReport write_pass(const std::string& method, std::shared_ptr<const CalibrationData> calibration,
                               std::int64_t step);
  // Validation of an export folder, on rank 0. False: the pass before is better.
  bool measure(const std::filesystem::path& folder, const std::string& method, std::int64_t step,
               ModelFolderReport& report);

  RunSession& session_;
  RunRecord& record_;
  const DataSetup& data_;
  const RunModel& model_;
  std::shared_ptr<const CalibrationData> calibration_;  // null: none
  std::optional<ExportValidation> validation_;
  std::vector<EvaluationMetrics> evaluations_;  // one a pass, the kept one last
  std::string folder_;
};

// Validation of a run: batches and rows of section evaluation.
[[nodiscard]] ValidationOptions validation_options(const RunConfig& config);

// A warning with a remedy where the export is notably worse than the trained model.
void warn_of_export(const RunConfig& config, const RunEnd& end);

}  // namespace quench
