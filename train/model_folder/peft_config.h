#pragma once
// adapter_config.json of PEFT (peft.LoraConfig), as far as this program goes along.

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
  std::vector<std::string> targets;    // of a list; empty where the config has a pattern over whole names
  std::vector<LayerPattern> excluded;  // layers without adapter although they are targets
  std::vector<std::pair<LayerPattern, std::int64_t>> rank_pattern;
  std::vector<std::pair<LayerPattern, double>> alpha_pattern;

  [[nodiscard]] bool excludes(std::string_view layer) const;
  // Of a layer, by the first pattern that matches it.
  [[nodiscard]] std::int64_t rank_of(std::string_view layer) const;
  [[nodiscard]] double scale_of(std::string_view layer, std::int64_t rank) const;
};

// Throws corrupt or unsupported naming `source` and the key.
[[nodiscard]] PeftConfig parse_peft_config(const Json& json, std::string_view source);

// The config of adapters over a model whose linear layers are `all`. PEFT takes targets by the end of a name: a layer
// kind is named once where all of its layers have an adapter, else each layer by its path.
[[nodiscard]] Json peft_config_json(const std::vector<recipes::LoraLayer>& layers,
                                    const std::vector<recipes::LinearShape>& all, const recipes::LoraOptions& options,
                                    const std::string& base);

}  // namespace quench
