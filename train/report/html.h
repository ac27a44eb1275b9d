#pragma once
// Text for HTML.

#include <string>
#include <string_view>

namespace quench {

// Text that may stand between tags and inside quoted attributes, whatever it holds: & < > " ' become references,
// invalid UTF-8 and control characters other than tab and line feed U+FFFD.
[[nodiscard]] std::string escape_html(std::string_view text);

// The longest prefix of at most max_bytes that ends at a character, with an ellipsis where something was cut.
[[nodiscard]] std::string shorten(std::string_view text, std::size_t max_bytes);

}  // namespace quench
