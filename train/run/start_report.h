#pragma once
// Report of a run at its start, one line a subject.

#include <string>

#include "core/json/json.h"
#include "train/config/resolved_config.h"
#include "train/record/run_model.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"

namespace quench {

// Model size, batch arithmetic, precision per layer, data, token ids. Lines with a final line break.
[[nodiscard]] std::string start_report(const ResolvedConfig& resolved, const ModelSetup& model, const DataSetup& data,
                                       const RunModel& run_model, const Json& environment, std::int64_t steps);

}  // namespace quench
