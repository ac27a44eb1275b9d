#pragma once
// Token sequences for calibration, read as evaluation reads its documents.

#include <memory>

#include "export/quantize_model.h"
#include "train/evaluation/evaluation_data.h"

namespace quench {

inline constexpr std::int64_t kCalibrationSamples = 128;
inline constexpr std::int64_t kCalibrationTokens = 2048;  // of a sequence, where the model's context is that long

struct CalibrationOptions {
  EvaluationData data;
  std::int64_t samples = kCalibrationSamples;
  std::int64_t tokens = 0;  // of a sequence; 0: kCalibrationTokens, at most the model's context
};

// The first `samples` sequences of the documents, which follow one another in one stream; each has all its tokens.
// Throws bad_config where the data hold fewer, saying how many they hold, and for sequences longer than the context;
// what read_evaluation_data() throws.
[[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration_data(const CalibrationOptions& options,
                                                                           const Tokenizer* tokenizer,
                                                                           const nn::ModelConfig& model);

}  // namespace quench
