#pragma once
// Printable alphabet of byte-level BPE, one character per byte: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF are their code
// points; the other 68, in order, U+0100, U+0101, ... (Radford et al., "Language Models are Unsupervised Multitask
// Learners", 2019, published encoder).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quench {

[[nodiscard]] char32_t byte_to_character(std::uint8_t byte) noexcept;

[[nodiscard]] std::string to_byte_alphabet(std::string_view bytes);

// nullopt for other characters.
[[nodiscard]] std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace quench
