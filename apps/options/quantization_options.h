#pragma once
// Quantization options of verbs that write models.

#include <string>
#include <vector>

#include "apps/command.h"
#include "train/config/sections/quantization_section.h"
#include "train/evaluation/calibration_data.h"

namespace quench {

struct QuantizationOptions {
  QuantizationSection section;
  std::vector<std::string> exclude = excluded_layers({});

  void add_to(const Command& verb);
  // The section with the patterns of `exclude`.
  [[nodiscard]] QuantizationSection named() const;
};

}  // namespace quench
