#pragma once
// Token sequences for calibration, read as evaluation reads its documents.

#include <memory>

#include "train/config/quantization_section.h"
#include "train/evaluation/evaluation_data.h"

namespace quench {

// The first section.calibration_samples sequences of the documents, which follow one another in one stream; each has
// all its tokens. Null where the section names no files. `no_tokenizer` says why there is none, where that is not for
// want of one in the model folder. Throws bad_config where the data hold fewer, saying how many they hold, and for
// sequences longer than the context; what read_evaluation_data() throws.
[[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration_data(const QuantizationSection& section,
                                                                           const Tokenizer* tokenizer,
                                                                           const nn::ModelConfig& model,
                                                                           const std::string& no_tokenizer = {});

}  // namespace quench
