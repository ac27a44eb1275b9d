#pragma once
// Export of a trained model: rules, calibration, the folder or file written.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "train/model_folder/model_folder.h"
#include "train/record/run_model.h"
#include "train/session/run_session.h"

namespace quench {

// Throws bad_config or unsupported for an impossible export: patterns without layers, an unsuitable scheme, a model
// that the format cannot describe. Reads no weights; works on the meta device. The config is checked
// (train/check/check.h).
void require_exportable(const RunSession& session);

// One way to write a run's model.
struct ExportPass {
  QuantizationSection quantization;                    // export.* with a method of quantizers()
  std::shared_ptr<const CalibrationData> calibration;  // null: none
  // Files and tokens of perplexities in the model card; empty: not measured.
  std::string validation_data = {};
  // As ModelFolderOptions::accept, on rank 0.
  std::function<bool(const std::filesystem::path& folder, ModelFolderReport& report)> accept = {};
};

// Dense weights with adapters merged, pruned; once, before export_model(). Not for several ranks, which export by
// parameter, nor for adapters alone.
void prepare_export(const RunSession& session);

// Writes export.folder with the run folder's small files (train/record/run_model.h). Weights: training.dtype, or
// quantized as the pass says; adapters merged, or alone with export.format "peft". Passes may follow each other; after
// one with calibration data the model has the quantized weights, and is unusable for computation over several ranks, of
// which rank 0 writes by parameter and calibrates by layer. Collective. Returns rank 0's report.
ModelFolderReport export_model(const RunSession& session, const RunModel& description, ExportPass pass);

}  // namespace quench
