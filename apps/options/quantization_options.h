#pragma once
// Quantization options of verbs that write models.

#include <optional>
#include <string>

#include "apps/command.h"
#include "train/config/sections/quantization_section.h"
#include "train/evaluation/calibration_data.h"

namespace quench {

struct QuantizationOptions {
  QuantizationSection section;
  std::vector<std::string> exclude = excluded_layers({});

  void add_to(const Command& verb);
  // Absent without a scheme. Does not read the calibration files. Throws bad_config.
  [[nodiscard]] std::optional<QuantizationRules> resolve() const;
};

}  // namespace quench
