#pragma once
// Terminal-safe form of texts from files.

#include <cstddef>
#include <string>
#include <string_view>

namespace quench {

// Terminal-safe text: escapes control characters except line break and tab (\x1b), C1 and bidirectional controls
// (\u202e), invalid UTF-8 (\xff).
[[nodiscard]] std::string printable(std::string_view text);

// Bytes of a possibly incomplete character: 0 to 3.
[[nodiscard]] std::size_t unfinished_utf8(std::string_view text) noexcept;

}  // namespace quench
