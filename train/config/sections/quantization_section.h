#pragma once
// Quantization settings of exports, for command options and config section export; validated by resolve_quantization().

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

inline constexpr std::int64_t kCalibrationSamples = 128;
inline constexpr std::int64_t kCalibrationTokens = 2048;  // sequence length, at most the model's context

// Choice of export.method: RTN, then GPTQ if the validation loss rises notably.
inline constexpr const char* kAutoMethod = "auto";
inline constexpr const char* kCalibratedMethod = "gptq";
// Rise of the validation loss in nats from the trained model to its export: 1% of perplexity.
inline constexpr double kNotableLossRise = 0.01;

struct QuantizationSection {
  std::string scheme;  // name in scheme_table(); empty: none
  std::string plan;    // file of a scheme plan (export/budget/plan_file.h) in place of `scheme`; empty: none
  std::string method{quantizers().front().name};
  std::vector<std::string> rules;                   // "PATTERN=SCHEME"
  std::string embeddings;                           // scheme of the embedding table; empty: none
  std::optional<std::vector<std::string>> exclude;  // patterns; unset: QuantizationRules defaults
  std::vector<std::string> calibration;
  std::string imatrix;       // importance matrix of GGUF types: a file of llama.cpp's; empty: that of `calibration`
  std::string save_imatrix;  // file for the matrix of `calibration`; empty: none
  std::int64_t calibration_samples = kCalibrationSamples;
  std::int64_t calibration_seq_len = 0;  // 0: kCalibrationTokens, at most the model's context
  std::optional<double> damping;
  std::optional<bool> act_order;
  std::optional<double> smoothing;
  std::optional<std::int64_t> iterations;
  std::optional<std::int64_t> batch_size;

  friend bool operator==(const QuantizationSection&, const QuantizationSection&) = default;
};

// Error sink for these members.
struct QuantizationFaults {
  std::function<std::string(std::string_view member)> key;  // user-visible: "--scheme", "export.scheme"
  std::function<void(std::string_view member, std::string reason)> report;
  // Receiver of the remark on calibration files that nothing uses; null: report().
  std::function<void(std::string_view member, std::string reason)> warn = nullptr;
};

// Patterns.
[[nodiscard]] std::vector<std::string> excluded_layers(const QuantizationSection& section);

// With `method` in place of kAutoMethod: for RTN without the data and options of kCalibratedMethod.
[[nodiscard]] QuantizationSection section_of_method(QuantizationSection section, std::string_view method);

// nullopt without a scheme. The result has no calibration data. Reports unknown names, options without effect on the
// method, missing or unusable calibration files; valid only without reports.
[[nodiscard]] std::optional<QuantizationRules> resolve_quantization(const QuantizationSection& section,
                                                                    const QuantizationFaults& faults);

}  // namespace quench
