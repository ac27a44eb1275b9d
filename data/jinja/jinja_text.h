#pragma once
// Python's string methods on UTF-8. Bytes that are not well-formed count as one character each.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench::jinja {

enum class StripSide : std::uint8_t { left, right, both };

// Without white space, or without the characters of `characters` if there are any, at the ends.
[[nodiscard]] std::string_view strip(std::string_view text, std::string_view characters, StripSide side);
[[nodiscard]] std::size_t character_count(std::string_view text) noexcept;
[[nodiscard]] std::vector<std::string_view> characters_of(std::string_view text);
// str.split(separator, limit); an empty separator splits at runs of white space. limit below 0: none.
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit);
// str.replace(from, to, limit)
[[nodiscard]] std::string replace(std::string_view text, std::string_view from, std::string_view to,
                                  std::int64_t limit);

enum class LetterCase : std::uint8_t { lower, upper, title, capitalize };
// Simple case mappings of Unicode, one character for one.
[[nodiscard]] std::string with_case(std::string_view text, LetterCase letter_case);

}  // namespace quench::jinja
