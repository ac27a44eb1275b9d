#pragma once
// Text and token formats of training data.

#include <string>
#include <string_view>
#include <vector>

#include "data/formats/token_format.h"
#include "data/text/text_format.h"

namespace quench {

// "auto", text formats, token formats.
[[nodiscard]] std::vector<std::string> data_format_names();
[[nodiscard]] std::string data_format_help();

// One of them; none for "auto".
struct DataFormat {
  const TextFormat* text = nullptr;
  const TokenFormat* tokens = nullptr;
};
// Throws bad_config listing the names; `key`: config key or option.
[[nodiscard]] DataFormat data_format_named(std::string_view name, std::string_view key = "data format");

}  // namespace quench
