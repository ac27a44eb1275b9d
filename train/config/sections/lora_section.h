#pragma once
// Config section lora.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "recipes/lora/base_form.h"
#include "train/config/sections/new_tokens.h"

namespace quench {

struct LoraSection {
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;  // in order: the first match applies
  std::vector<std::pair<std::string, double>> alpha_pattern;
  bool rslora = false;
  bool dora = false;                                  // trained magnitudes
  recipes::BaseForm base = recipes::BaseForm::dense;  // storage of the frozen base
  std::vector<std::string> modules_to_save;           // trained copies (recipes/lora/saved_modules.h)
  TrainedTokens trainable_token_indices;              // trained rows (recipes/lora/token_rows.h)
  bool quantize_merged = true;                        // QAT: fake-quantize the merged weight

  friend bool operator==(const LoraSection&, const LoraSection&) = default;
};

}  // namespace quench
