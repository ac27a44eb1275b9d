#pragma once

#include <memory>

#include "distributed/ranks.h"
#include "train/config/resolved_config.h"
#include "train/model_folder/model_folder.h"
#include "train/setup/model_setup.h"
#include "train/setup/run_model.h"

namespace quench {

// Throws bad_config or unsupported for an impossible export: patterns without layers, an unsuitable scheme, a model
// that the format cannot describe. Reads no weights; works on the meta device. The config is checked
// (train/check/check.h).
void require_exportable(const ResolvedConfig& resolved, const ModelSetup& setup);

// Writes export.folder with the run folder's small files (train/setup/run_model.h). Weights: training.dtype, or
// quantized by export.scheme; adapters merged, or alone with export.format "peft". `calibration`: may be null; the
// model has the quantized weights afterwards. Collective over `ranks`: rank 0 writes by parameter and calibrates by
// layer; the model is unusable for computation afterwards. `base_hash`: for adapter-only folders. Returns rank 0's
// report.
ModelFolderReport export_model(const ModelSetup& setup, const ResolvedConfig& resolved, const RunModel& description,
                               std::shared_ptr<const CalibrationData> calibration, const distributed::Ranks* ranks,
                               const std::string& base_hash = {});

}  // namespace quench
