#include "core/system/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/system/utf8.h"

namespace quench {
namespace {

// C0 except line break and tab, DEL, C1, bidirectional controls (UAX 9).
bool is_obeyed(std::uint32_t c) {
  if (c < 0x20) return c != '\n' && c != '\t';
  return (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

// Code point of a well-formed sequence.
std::uint32_t code_point(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead;
  std::uint32_t value = lead & (0x7Fu >> sequence.size());
  for (const char c : sequence.substr(1)) value = value << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return value;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_sequence_length(text, i);
    const std::uint32_t c = length == 0 ? static_cast<unsigned char>(text[i]) : code_point(text.substr(i, length));
    if (length == 0 || (c < 0x80 && is_obeyed(c)))
      shown += fmt::format("\\x{:02x}", c);
    else if (is_obeyed(c))
      shown += fmt::format("\\u{:04x}", c);
    else
      shown += text.substr(i, length);
    i += std::max<std::size_t>(length, 1);
  }
  return shown;
}

std::size_t unfinished_utf8(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC2 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace quench
