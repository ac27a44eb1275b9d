#pragma once
// How verbs that write models are told to quantize them.

#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "export/quantize_model.h"

namespace quench {

struct QuantizationOptions {
  std::string scheme;
  std::string method{quantizers().front().name};
  std::vector<std::string> rules;
  std::vector<std::string> exclude = QuantizationRules{}.exclude;

  void add_to(CLI::App& verb);
  // Absent without a scheme. Throws bad_config.
  [[nodiscard]] std::optional<QuantizationRules> resolve() const;
};

}  // namespace quench
