#pragma once
// How verbs that write models are told to quantize them.

#include <optional>
#include <string>

#include "apps/command.h"
#include "train/config/quantization_section.h"
#include "train/evaluation/calibration_data.h"

namespace quench {

struct QuantizationOptions {
  QuantizationSection section;
  std::vector<std::string> exclude = excluded_layers({});

  void add_to(const Command& verb);
  // Absent without a scheme; without calibration data, whose files it does not read. Throws bad_config.
  [[nodiscard]] std::optional<QuantizationRules> resolve() const;
};

}  // namespace quench
