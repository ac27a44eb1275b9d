#pragma once
// The alphabet in which byte-level BPE vocabularies are written: every byte stands for one printable character.
//
// Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for the character of the same number; the other 68 bytes, in
// increasing order, for U+0100, U+0101, ... (Radford et al., "Language Models are Unsupervised Multitask Learners",
// 2019, and its published encoder).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quench {

[[nodiscard]] char32_t byte_to_character(std::uint8_t byte) noexcept;

// Any bytes, as UTF-8 text in the alphabet.
[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

// The bytes that well-formed UTF-8 text stands for; nullopt if a character is not in the alphabet.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace quench
