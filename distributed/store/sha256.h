#pragma once
// SHA-256 (FIPS 180-4) and HMAC (RFC 2104).

#include <array>
#include <cstdint>
#include <string_view>

namespace quench::distributed {

using Sha256Digest = std::array<std::uint8_t, 32>;

[[nodiscard]] Sha256Digest sha256(std::string_view bytes);
[[nodiscard]] Sha256Digest hmac_sha256(std::string_view key, std::string_view bytes);
// Constant-time comparison.
[[nodiscard]] bool equal_digests(const Sha256Digest& a, std::string_view b) noexcept;

}  // namespace quench::distributed
