#pragma once
// A trained model as a folder in one of the export formats.

#include <memory>

#include "distributed/ranks.h"
#include "train/config/resolved_config.h"
#include "train/model_folder/model_folder.h"
#include "train/setup/model_setup.h"
#include "train/setup/run_model.h"

namespace quench {

// Throws bad_config or unsupported where the model cannot be written as the section export says: patterns that match no
// layer, a scheme that suits none, a model that the format cannot describe. Reads no weight; the model may be on the
// meta device. The config has passed every check of train/check/check.h.
void require_exportable(const ResolvedConfig& resolved, const ModelSetup& setup);

// Writes the model to export.folder with the small files that the run folder keeps (train/setup/run_model.h). Weights
// are stored in training.dtype, or as codes of export.scheme. Adapters are merged into the model's weights, or, with
// export.format "peft", all that is written. `calibration`: what export.calibration names, or null; the model computes
// with its codes afterwards. In a run of several processes (`ranks`) all call it, and rank 0 writes, one parameter
// after another; calibration, which only rank 0 needs, runs there, one layer after another, and no process computes
// with the model afterwards. `base_hash` is that of
// the weights that adapters were trained over, for a folder of the adapters alone. Returns what the first process has
// done.
ModelFolderReport export_model(const ModelSetup& setup, const ResolvedConfig& resolved, const RunModel& description,
                               std::shared_ptr<const CalibrationData> calibration, const distributed::Ranks* ranks,
                               const std::string& base_hash = {});

}  // namespace quench
