#pragma once
// How verbs that write models are told to quantize them.

#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "train/evaluation/calibration_data.h"

namespace quench {

struct QuantizationOptions {
  std::string scheme;
  std::string method{quantizers().front().name};
  std::vector<std::string> rules;
  std::vector<std::string> exclude = QuantizationRules{}.exclude;
  std::optional<double> damping;
  bool activation_order = false;
  std::optional<double> smoothing;
  std::vector<std::string> calibration;  // files
  std::int64_t calibration_samples = kCalibrationSamples;
  std::int64_t calibration_tokens = 0;

  void add_to(CLI::App& verb);
  // Absent without a scheme; without calibration data, whose files it does not read. Throws bad_config.
  [[nodiscard]] std::optional<QuantizationRules> resolve() const;
  // Null where none are named.
  [[nodiscard]] std::shared_ptr<const CalibrationData> read_calibration(const Tokenizer* tokenizer,
                                                                        const nn::ModelConfig& model,
                                                                        const std::string& no_tokenizer) const;
};

}  // namespace quench
