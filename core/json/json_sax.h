#pragma once
// JSON events (SAX) for parsers inside core.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/system/utf8.h"

namespace quench {

using JsonSax = nlohmann::json_sax<nlohmann::json>;

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." -> "syntax error ...",
// shortened.
inline std::string json_error_reason(const char* what) {
  std::string_view text(what);
  if (const auto end = text.find("] "); text.starts_with("[json.exception.") && end != std::string_view::npos)
    text.remove_prefix(end + 2);
  if (const auto end = text.find(": "); text.starts_with("parse error at ") && end != std::string_view::npos)
    text.remove_prefix(end + 2);
  return shorten_utf8(text, 300);
}

}  // namespace quench
