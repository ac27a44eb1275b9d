#pragma once
// Code points of UTF-8 text.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/system/utf8.h"

namespace quench {

[[nodiscard]] char32_t decode_code_point(std::string_view text, std::size_t offset) noexcept;

// Well-formed.
[[nodiscard]] std::size_t code_point_length(std::string_view text, std::size_t offset) noexcept;

void append_code_point(std::string& text, char32_t code_point);

// Maximal well-formed ranges, and bytes between, in order; none empty.
template <class OnText, class OnOther>
void for_each_stretch(std::string_view bytes, const OnText& on_text, const OnOther& on_other) {
  while (!bytes.empty()) {
    const std::size_t text = std::min(find_invalid_utf8(bytes), bytes.size());
    if (text > 0) on_text(bytes.substr(0, text));
    std::size_t end = text;
    while (end < bytes.size() && utf8_sequence_length(bytes, end) == 0) ++end;
    if (end > text) on_other(bytes.substr(text, end - text));
    bytes.remove_prefix(end);
  }
}

// 0 to 3.
[[nodiscard]] std::size_t incomplete_utf8_suffix(std::string_view bytes) noexcept;

}  // namespace quench
