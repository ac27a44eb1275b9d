#pragma once
// The formats of training data by name: those of text and those of tokens.

#include <string>
#include <string_view>
#include <vector>

#include "data/formats/token_format.h"
#include "data/text/text_format.h"

namespace quench {

// "auto", the formats of text, those of tokens.
[[nodiscard]] std::vector<std::string> data_format_names();
// The same with a summary each, for help.
[[nodiscard]] std::string data_format_help();

// One of the two, or none for "auto".
struct DataFormat {
  const TextFormat* text = nullptr;
  const TokenFormat* tokens = nullptr;
};
// Throws bad_config with the list of names for an unknown one; `key` names the config key or option in the message.
[[nodiscard]] DataFormat data_format_named(std::string_view name, std::string_view key = "data format");

}  // namespace quench
