#pragma once
// How a model is quantized where it is written. Options of verbs and keys of the config's section export fill the same
// members; resolve_quantization() is the one judgement of both.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

inline constexpr std::int64_t kCalibrationSamples = 128;
inline constexpr std::int64_t kCalibrationTokens = 2048;  // of a sequence, where the model's context is that long

struct QuantizationSection {
  std::string scheme;  // a name of scheme_table(); empty: none
  std::string method{quantizers().front().name};
  std::vector<std::string> rules;                   // "PATTERN=SCHEME"
  std::string embeddings;                           // a scheme for the embedding table; empty: none
  std::optional<std::vector<std::string>> exclude;  // patterns; absent: those of QuantizationRules
  std::vector<std::string> calibration;             // files
  std::int64_t calibration_samples = kCalibrationSamples;
  std::int64_t calibration_seq_len = 0;  // 0: kCalibrationTokens, at most the model's context
  std::optional<double> damping;
  bool act_order = false;
  std::optional<double> smoothing;

  friend bool operator==(const QuantizationSection&, const QuantizationSection&) = default;
};

// Where faults go. A member is named as above.
struct QuantizationFaults {
  std::function<std::string(std::string_view member)> key;  // what the user calls it: "--scheme", "export.scheme"
  std::function<void(std::string_view member, std::string reason)> report;
};

// The patterns of layers that stay in high precision.
[[nodiscard]] std::vector<std::string> excluded_layers(const QuantizationSection& section);

// Absent without a scheme; without calibration data, whose files it does not read. Reports unknown names, options that
// do not act on the method, and calibration files that are missing or of no use; the result counts only where nothing
// was reported.
[[nodiscard]] std::optional<QuantizationRules> resolve_quantization(const QuantizationSection& section,
                                                                    const QuantizationFaults& faults);

}  // namespace quench
