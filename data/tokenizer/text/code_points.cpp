#include "data/tokenizer/text/code_points.h"

#include <cstdint>

namespace quench {
namespace {

std::uint8_t byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<std::uint8_t>(bytes[i]);
}

}  // namespace

char32_t decode_code_point(std::string_view text, std::size_t offset) noexcept {
  const std::uint8_t lead = byte_at(text, offset);
  const auto tail = [&](std::size_t i) { return static_cast<char32_t>(byte_at(text, offset + i) & 0x3F); };
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return static_cast<char32_t>(lead & 0x1F) << 6 | tail(1);
  if (lead < 0xF0) return static_cast<char32_t>(lead & 0x0F) << 12 | tail(1) << 6 | tail(2);
  return static_cast<char32_t>(lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
}

std::size_t code_point_length(std::string_view text, std::size_t offset) noexcept {
  const std::uint8_t lead = byte_at(text, offset);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

void append_code_point(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto put_tail = [&](int shift) { put(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put_tail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put_tail(6);
    put_tail(0);
  } else {
    put(0xF0 | code_point >> 18);
    put_tail(12);
    put_tail(6);
    put_tail(0);
  }
}

std::size_t incomplete_utf8_suffix(std::string_view bytes) noexcept {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, bytes.size()); ++length) {
    const std::size_t start = bytes.size() - length;
    const std::uint8_t lead = byte_at(bytes, start);
    if ((lead & 0xC0) == 0x80) continue;  // the lead byte is further left
    if (lead < 0xC0 || length >= code_point_length(bytes, start)) return 0;
    // Incomplete exactly if some continuation is well-formed. Only the second byte may be restricted, to a lower or
    // upper part: both ends suffice.
    for (const char filler : {'\x80', '\xBF'}) {
      std::string completed(bytes.substr(start));
      completed.resize(code_point_length(bytes, start), filler);
      if (utf8_sequence_length(completed, 0) != 0) return length;
    }
    return 0;
  }
  return 0;
}

}  // namespace quench
