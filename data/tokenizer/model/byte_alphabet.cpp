#include "data/tokenizer/model/byte_alphabet.h"

#include <array>

#include "data/tokenizer/text/code_points.h"

namespace quench {
namespace {

constexpr char32_t kAlphabetEnd = 0x100 + 68;

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kAlphabetEnd> byte{};  // -1: not in the alphabet

  constexpr Tables() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned value = 0; value < 256; ++value) {
      const bool itself = (value >= 0x21 && value <= 0x7E) || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
      character[value] = itself ? value : next++;
      byte[character[value]] = static_cast<std::int16_t>(value);
    }
  }
};
constexpr Tables kTables;

}  // namespace

char32_t byte_to_character(std::uint8_t byte) noexcept {
  return kTables.character[byte];
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_code_point(text, byte_to_character(static_cast<std::uint8_t>(byte)));
  return text;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += code_point_length(text, at)) {
    const char32_t character = decode_code_point(text, at);
    if (character >= kAlphabetEnd || kTables.byte[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.byte[character]));
  }
  return bytes;
}

}  // namespace quench
