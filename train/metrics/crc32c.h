#pragma once
// CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, initial value and final xor 0xFFFFFFFF (RFC 3720, appendix
// B.4).

#include <cstdint>
#include <string_view>

namespace quench {

// crc32c("123456789") == 0xE3069283
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes) noexcept;

// Masked as in TFRecord files: rotated right by 15 bits plus 0xA282EAD8.
[[nodiscard]] constexpr std::uint32_t mask_crc32c(std::uint32_t crc) noexcept {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace quench
