#pragma once
// Calibration sequences, read like evaluation documents.

#include <memory>

#include "data/sampling/dataset.h"
#include "train/config/sections/quantization_section.h"
#include "train/evaluation/evaluation_data.h"

namespace quench {

// First section.calibration_samples full-length sequences of the concatenated documents; of fewer data all full ones,
// or a shorter one, which is logged. Null without files. `no_tokenizer`: reason for a missing tokenizer. Throws
// bad_config for empty data or sequences longer than the context, and errors of read_evaluation_data().
[[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration_data(const QuantizationSection& section,
                                                                           const Tokenizer* tokenizer,
                                                                           const nn::ModelConfig& model,
                                                                           const std::string& no_tokenizer = {});

// The first rows of the data in training order, at most `count`, without padding. `names`: for the source.
[[nodiscard]] std::shared_ptr<const CalibrationData> calibration_rows(const Dataset& data, std::int64_t count,
                                                                      const std::string& names);

}  // namespace quench
