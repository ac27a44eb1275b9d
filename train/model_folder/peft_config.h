#pragma once
// adapter_config.json (peft.LoraConfig), supported subset.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "export/schemes/layer_pattern.h"
#include "recipes/lora/adapters.h"

namespace quench {

struct PeftConfig {
  std::int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool rslora = false;
  bool dora = false;
  std::vector<std::string> targets;    // empty for a pattern over whole names
  std::vector<LayerPattern> excluded;  // targets without adapter
  std::vector<std::string> modules_to_save;
  bool ties_weights = false;        // ensure_weight_tying
  recipes::TokenIds token_indices;  // trainable_token_indices
  std::vector<std::pair<LayerPattern, std::int64_t>> rank_pattern;
  std::vector<std::pair<LayerPattern, double>> alpha_pattern;

  [[nodiscard]] bool excludes(std::string_view layer) const;
  // By the first matching pattern.
  [[nodiscard]] std::int64_t rank_of(std::string_view layer) const;
  [[nodiscard]] double scale_of(std::string_view layer, std::int64_t rank) const;
};

// Throws corrupt or unsupported naming `source` and key.
[[nodiscard]] PeftConfig parse_peft_config(const Json& json, std::string_view source);

// PEFT matches targets by name suffix: a layer kind among `all` is listed once if all its layers have an adapter, else
// layers by path. Modules of `adapters.saved()` likewise, of all in `savable`, by the end of their names.
[[nodiscard]] Json peft_config_json(const recipes::Adapters& adapters, const std::vector<recipes::LinearShape>& all,
                                    const std::vector<std::string>& savable, const std::string& base);

}  // namespace quench
