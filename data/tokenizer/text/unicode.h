#pragma once
// Character classes of Unicode, and NFC.

#include <string>
#include <string_view>

namespace quench {

[[nodiscard]] bool is_white_space(char32_t code_point) noexcept;

// str.strip() and \s: White_Space and the four information separators.
[[nodiscard]] inline bool is_python_space(char32_t code_point) noexcept {
  return is_white_space(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

// \w of UTS #18: letters, marks, decimal digits, connectors, join controls.
[[nodiscard]] bool is_word_character(char32_t code_point) noexcept;

// NFC (UAX #15) of well-formed UTF-8: `text` if a quick check finds it normalized, else a view into `storage`. O(n log
// n): utf8proc's canonical ordering, quadratic on runs of marks, is replaced.
[[nodiscard]] std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace quench
