#include "core/system/utf8.h"

#include <cstdint>
#include <cstring>

namespace quench {

std::size_t utf8_sequence_length(std::string_view text, std::size_t offset) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return offset + i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead < 0xF0) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead > 0xF4) return 0;
  const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
  return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
}

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    // Eight ASCII bytes.
    std::uint64_t word = 0;
    if (i + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        i += sizeof(word);
        continue;
      }
    }
    const std::size_t length = utf8_sequence_length(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

namespace {

// At least 1; no well-formed sequence starts there.
std::size_t subpart_length(std::string_view text, std::size_t offset) noexcept {
  for (std::size_t length = 3; length > 1; --length) {
    if (offset + length > text.size()) continue;
    // Well-formed with 0x80 for each missing byte.
    std::string whole(text.substr(offset, length));
    while (whole.size() < 4) {
      whole += '\x80';
      if (utf8_sequence_length(whole, 0) == whole.size()) return length;
    }
  }
  return 1;
}

// length_at: bytes per U+FFFD.
template <class Length>
std::string replaced(std::string_view text, Length&& length_at) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bad = find_invalid_utf8(text);
    result += text.substr(0, bad);
    if (bad == std::string_view::npos) break;
    result += "\xEF\xBF\xBD";
    text.remove_prefix(bad + length_at(text, bad));
  }
  return result;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  return replaced(text, [](std::string_view, std::size_t) { return std::size_t{1}; });
}

std::string replace_invalid_subparts(std::string_view text) {
  return replaced(text, subpart_length);
}

std::string shorten_utf8(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return replace_invalid_utf8(text);
  // At character boundaries.
  const auto is_inside = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  std::size_t head = limit / 2;
  for (int i = 0; i < 3 && head > 0 && is_inside(head); ++i) --head;
  std::size_t tail = text.size() - limit / 2;
  for (int i = 0; i < 3 && tail < text.size() && is_inside(tail); ++i) ++tail;
  return replace_invalid_utf8(text.substr(0, head)) + " ... " + replace_invalid_utf8(text.substr(tail));
}

}  // namespace quench
