#pragma once
// Data files declared by a Hugging Face Hub dataset card (README.md).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Entry of the YAML list `configs` of a card.
struct CardConfig {
  std::string name;
  bool is_default = false;  // declared, or named "default"
  std::string folder{};     // data_dir: folder of the files, if none are declared
  // Splits in order, with glob patterns relative to the folder of README.md. Files without a split: train.
  std::vector<std::pair<std::string, std::vector<std::string>>> splits{};
};

// Parser of block-style YAML; other forms, and cards without `configs`, return none.
[[nodiscard]] std::vector<CardConfig> card_configs(std::string_view card);

}  // namespace quench
