#pragma once
// Data files of a Hugging Face dataset card (README.md).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Entry of the YAML list `configs`.
struct CardConfig {
  std::string name;
  bool is_default = false;  // declared, or named "default"
  std::string folder{};     // data_dir, if no files are declared
  // In order; globs relative to README.md. Files without a split: train.
  std::vector<std::pair<std::string, std::vector<std::string>>> splits{};
};

// Block-style YAML; none for other forms, and without `configs`.
[[nodiscard]] std::vector<CardConfig> card_configs(std::string_view card);

}  // namespace quench
