#pragma once
// Well-formed UTF-8 as the Unicode Standard defines it (table 3-7): no overlong forms, no surrogates, at most U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace quench {

// Bytes of the well-formed sequence that starts at text[offset] (1 to 4), or 0 if none does. offset < text.size().
[[nodiscard]] std::size_t utf8_sequence_length(std::string_view text, std::size_t offset) noexcept;

// Offset of the first byte that is not part of a well-formed sequence; npos if there is none.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text) noexcept;

// The text with every such byte replaced by U+FFFD.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

// The text with every maximal subpart of such bytes replaced by one U+FFFD: the longest beginning of a character, or a
// single byte, as Python, Rust and browsers do.
[[nodiscard]] std::string replace_invalid_subparts(std::string_view text);

// Valid UTF-8 for a message that quotes foreign text of any length: beyond about `limit` bytes only both ends are kept.
[[nodiscard]] std::string shorten_utf8(std::string_view text, std::size_t limit);

}  // namespace quench
