#pragma once
// First training records of a run, shown at its start.

#include <string>

#include "train/config/run_config.h"
#include "train/session/data_setup.h"

namespace quench {

// First training document of each path of data.train, of pairs of answers the first two, with trained tokens in [[ ]],
// and token counts; lines with a final line break. Empty without a tokenizer and for pre-training (model.path names no
// folder and every token is a target).
[[nodiscard]] std::string first_record(const RunConfig& config, const DataSetup& data);

}  // namespace quench
