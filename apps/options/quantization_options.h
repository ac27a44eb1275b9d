#pragma once
// Quantization options of verbs that write models.

#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "train/config/sections/quantization_section.h"
#include "train/evaluation/calibration_data.h"

namespace quench {

struct QuantizationOptions {
  QuantizationSection section;
  std::vector<std::string> exclude = excluded_layers({});
  std::optional<CommandOption> exclude_option = {};
  bool act_order = false, no_act_order = false;

  void add_to(const Command& verb);
  // The section with the patterns of `exclude`, if given.
  [[nodiscard]] QuantizationSection named() const;
};

}  // namespace quench
