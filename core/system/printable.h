#pragma once
// Text from files that may have been made to deceive, as a terminal may show it.

#include <cstddef>
#include <string>
#include <string_view>

namespace quench {

// The text with everything that a terminal would obey or that hides what is there written out: control characters but
// line break and tab as \x1b, the C1 controls and the characters that change the direction of writing as \u202e, bytes
// that are not UTF-8 as \xff.
[[nodiscard]] std::string printable(std::string_view text);

// Bytes at the end of the text that may be the beginning of a character: 0 to 3.
[[nodiscard]] std::size_t unfinished_utf8(std::string_view text) noexcept;

}  // namespace quench
