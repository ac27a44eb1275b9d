#pragma once
// The first record of a fine-tune, as it is trained on.

#include <string>

#include "train/config/run_config.h"
#include "train/setup/data_setup.h"

namespace quench {

// The text of the first document of the training data, with its trained tokens in [[ ]], and its counts; several lines,
// ending in a line break. Empty for runs that are no fine-tune (model.path names no folder and every token is a target)
// and without a tokenizer.
[[nodiscard]] std::string first_record(const RunConfig& config, const DataSetup& data);

}  // namespace quench
