#pragma once
// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for proofs that both ends of a connection know the job's token.

#include <array>
#include <cstdint>
#include <string_view>

namespace quench::distributed {

using Sha256Digest = std::array<std::uint8_t, 32>;

[[nodiscard]] Sha256Digest sha256(std::string_view bytes);
[[nodiscard]] Sha256Digest hmac_sha256(std::string_view key, std::string_view bytes);
// In a time that does not depend on where the two differ.
[[nodiscard]] bool equal_digests(const Sha256Digest& a, std::string_view b) noexcept;

}  // namespace quench::distributed
