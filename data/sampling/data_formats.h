#pragma once
// The formats of training data by name: those of text and those of tokens.

#include <string>
#include <string_view>
#include <vector>

#include "data/formats/token_format.h"

namespace quench {

// "auto", the formats of text (data/text/document_reader.h), those of tokens.
[[nodiscard]] std::vector<std::string> data_format_names();
// The same with a summary each, for help.
[[nodiscard]] std::string data_format_help();
// Whether the name is that of a format of text; false for "auto".
[[nodiscard]] bool is_text_format(std::string_view name);
// Null for "auto" and for formats of text; throws bad_config with the list of names for an unknown one.
[[nodiscard]] const TokenFormat* token_format_named(std::string_view name);

}  // namespace quench
