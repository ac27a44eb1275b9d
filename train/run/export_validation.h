#pragma once
// Validation loss of a quantized export, next to that of the trained model.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/sampling/dataset.h"
#include "train/evaluation/validation.h"

namespace quench {

// Mean cross-entropies over the same rows.
struct ExportValidation {
  struct Export {
    std::string method;  // name in quantizers(), or kTrainedCodes
    double loss = 0;
  };
  double trained = 0;
  Export kept;
  std::optional<Export> discarded = {};  // by export.method auto

  // More than kNotableLossRise.
  [[nodiscard]] bool is_notable() const;
};

// Method of an export with the codes that QAT has trained.
inline constexpr const char* kTrainedCodes = "qat";

// "validation loss 0.0107 as trained, 0.0312 as exported by gptq (perplexity 1.0108, 1.0317); 0.1533 by rtn".
[[nodiscard]] std::string describe(const ExportValidation& validation);

// The model of an export folder, as validate() without an objective. Throws the readers' errors.
[[nodiscard]] EvaluationMetrics validate_export(const std::filesystem::path& folder, Device device,
                                                std::shared_ptr<const Dataset> data, const ValidationOptions& options);

}  // namespace quench
