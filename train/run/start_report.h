#pragma once
// Report of a run at its start, one line a subject.

#include <string>

#include "core/json/json.h"
#include "train/record/run_model.h"
#include "train/session/data_setup.h"
#include "train/session/run_session.h"

namespace quench {

// Model size, batch arithmetic, precision per layer, data, token ids. Lines with a final line break.
[[nodiscard]] std::string start_report(const RunSession& session, const DataSetup& data, const RunModel& run_model,
                                       const Json& environment, std::int64_t steps);

}  // namespace quench
