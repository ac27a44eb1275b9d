#pragma once
// Layers that stay in high precision since their shapes do not suit the scheme, and the nearest scheme that suits them.

#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "export/ptq/quantize_model.h"
#include "export/table/reader_table.h"

namespace quench {

struct UnfitScheme {
  const Scheme* scheme = nullptr;
  const Scheme* fits = nullptr;  // suits all layers of the scheme, and a reader runs it; null: none
  std::string problem;           // reason for the first layer
  std::size_t layers = 0, all = 0;
  std::uint64_t bytes = 0, all_bytes = 0;  // in high precision
};

// The first scheme of the rules that some of its layers do not suit. `reader`: null: any of the format.
[[nodiscard]] std::optional<UnfitScheme> unfit_scheme(const ExportFormat& format,
                                                      const std::vector<ModelTensor>& tensors,
                                                      const QuantizationRules& rules, const FolderReader* reader);
// One line: "scheme int4_weight_only_g128 suits 30 of 210 linear layers (...): 181.6 of 212.3 MB stay in high
// precision; int4_weight_only_g64 suits all".
[[nodiscard]] std::string to_text(const UnfitScheme& unfit);
[[nodiscard]] Json to_json(const UnfitScheme& unfit);

}  // namespace quench
