#pragma once
// Well-formed UTF-8 (Unicode, table 3-7): no overlong forms, no surrogates, at most U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace quench {

// 1 to 4, or 0 if malformed. offset < text.size().
[[nodiscard]] std::size_t utf8_sequence_length(std::string_view text, std::size_t offset) noexcept;

// npos if none.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text) noexcept;

// Each malformed byte becomes U+FFFD.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

// Each maximal subpart (longest incomplete character, or one byte) becomes U+FFFD, as in Python, Rust and browsers.
[[nodiscard]] std::string replace_invalid_subparts(std::string_view text);

// Valid UTF-8; beyond about `limit` bytes only both ends.
[[nodiscard]] std::string shorten_utf8(std::string_view text, std::size_t limit);

}  // namespace quench
