#pragma once
// Well-formed UTF-8 (Unicode Standard, table 3-7): no overlong forms, no surrogates, at most U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace quench {

// Length (1 to 4) of the well-formed sequence at text[offset], else 0. offset < text.size().
[[nodiscard]] std::size_t utf8_sequence_length(std::string_view text, std::size_t offset) noexcept;

// Offset of the first malformed byte, or npos.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text) noexcept;

// Replaces each malformed byte by U+FFFD.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

// Replaces each maximal subpart (longest incomplete character, or one byte) by U+FFFD, as Python, Rust and browsers do.
[[nodiscard]] std::string replace_invalid_subparts(std::string_view text);

// Valid UTF-8 for messages; beyond about `limit` bytes only both ends are kept.
[[nodiscard]] std::string shorten_utf8(std::string_view text, std::size_t limit);

}  // namespace quench
