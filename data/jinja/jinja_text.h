#pragma once
// Python string methods on UTF-8. A byte that is not well-formed is a character.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench::jinja {

enum class StripSide : std::uint8_t { left, right, both };

// str.strip(): white space, or `characters`.
[[nodiscard]] std::string_view strip(std::string_view text, std::string_view characters, StripSide side);
[[nodiscard]] std::size_t character_count(std::string_view text) noexcept;
[[nodiscard]] std::vector<std::string_view> characters_of(std::string_view text);
// str.split(separator, limit); empty separator: white space. limit < 0: none.
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit);
// str.rsplit(separator, limit), in text order.
[[nodiscard]] std::vector<std::string> split_from_end(std::string_view text, std::string_view separator,
                                                      std::int64_t limit);
// str.splitlines(keep_ends)
[[nodiscard]] std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
// str.replace(from, to, limit)
[[nodiscard]] std::string replace(std::string_view text, std::string_view from, std::string_view to,
                                  std::int64_t limit);

enum class LetterCase : std::uint8_t { lower, upper, title, capitalize, swap, fold };
// str.lower(), upper(), title(), capitalize(), swapcase(), casefold(), with special casing.
[[nodiscard]] std::string with_case(std::string_view text, LetterCase letter_case);

enum class CharacterClass : std::uint8_t { alpha, decimal, digit, numeric, alphanumeric, space, printable, ascii };
// str.isalpha() etc.: all characters and, except printable and ascii, at least one.
[[nodiscard]] bool is_all(std::string_view text, CharacterClass character_class);
// str.islower(), isupper(), istitle()
[[nodiscard]] bool is_cased(std::string_view text, LetterCase letter_case);

// MarkupSafe's escape().
[[nodiscard]] std::string escape_html(std::string_view text);

}  // namespace quench::jinja
