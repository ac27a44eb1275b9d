#pragma once
// The data files that the card of a data set on the Hugging Face Hub (README.md) names.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// One data set of a card: an entry of the list `configs` in the YAML at the beginning of the card.
struct CardConfig {
  std::string name;
  bool is_default = false;  // says so, or is called "default"
  std::string folder{};     // data_dir: where its files lie, if no files are named
  // Splits in the order of the card, each with glob patterns relative to the card's folder. Files named without a split
  // are the train split.
  std::vector<std::pair<std::string, std::vector<std::string>>> splits{};
};

// Reads the block form of YAML that cards are written in; other forms, and cards without `configs`, give none.
[[nodiscard]] std::vector<CardConfig> card_configs(std::string_view card);

}  // namespace quench
