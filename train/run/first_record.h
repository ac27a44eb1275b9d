#pragma once
// First training record of a fine-tune, with its loss mask.

#include <string>

#include "train/config/run_config.h"
#include "train/setup/data_setup.h"

namespace quench {

// Text of the first training document, trained tokens in [[ ]], with token counts; several lines with a final line
// break. Empty without a tokenizer and for pre-training (model.path names no folder and every token is a target).
[[nodiscard]] std::string first_record(const RunConfig& config, const DataSetup& data);

}  // namespace quench
