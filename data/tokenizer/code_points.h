#pragma once
// Code points of UTF-8 text (core/utf8.h tells well-formed text from other bytes).

#include <cstddef>
#include <string>
#include <string_view>

namespace quench {

// The code point of the well-formed sequence at text[offset].
[[nodiscard]] char32_t decode_code_point(std::string_view text, std::size_t offset) noexcept;

// Bytes of the well-formed sequence whose lead byte is text[offset].
[[nodiscard]] std::size_t code_point_length(std::string_view text, std::size_t offset) noexcept;

// Appends a Unicode scalar value.
void append_code_point(std::string& text, char32_t code_point);

// Length (0 to 3) of the suffix that begins a well-formed sequence without completing it.
[[nodiscard]] std::size_t incomplete_utf8_suffix(std::string_view bytes) noexcept;

}  // namespace quench
