#pragma once
// Text in HTML pages.

#include <string>
#include <string_view>

namespace quench {

// For element content and quoted attributes: & < > " ' become references, invalid UTF-8 and control characters other
// than tab and line feed U+FFFD.
[[nodiscard]] std::string escape_html(std::string_view text);

// At a character boundary, with an ellipsis if truncated.
[[nodiscard]] std::string shorten(std::string_view text, std::size_t max_bytes);

}  // namespace quench
