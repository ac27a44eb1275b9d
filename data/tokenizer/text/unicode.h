#pragma once
// The properties and the normalization form of Unicode text that tokenizers need.

#include <string>
#include <string_view>

namespace quench {

// The White_Space property.
[[nodiscard]] bool is_white_space(char32_t code_point) noexcept;

// What Python's str.strip() removes and its \s matches: white space and the four information separators.
[[nodiscard]] inline bool is_python_space(char32_t code_point) noexcept {
  return is_white_space(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

// What \w means in UTS #18: letters, marks, decimal digits, connectors, and the two join controls.
[[nodiscard]] bool is_word_character(char32_t code_point) noexcept;

// Normalization Form C (UAX #15) of well-formed UTF-8. Returns `text` itself where a quick look shows that it is in
// that form already; otherwise the result lies in `storage`. O(n log n) for any input: utf8proc supplies the character
// data and the composition, but its canonical ordering, quadratic on long runs of marks, is not used.
[[nodiscard]] std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace quench
