#pragma once
// The tokens <0x00> to <0xFF> of vocabularies of text: each stands for one byte of what has no token of its own.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

[[nodiscard]] std::string byte_token(std::uint8_t byte);  // "<0x0A>"

// The byte that "<0x0A>" or "<0x0a>" stands for; nullopt for any other text.
[[nodiscard]] std::optional<std::uint8_t> byte_of_token(std::string_view text) noexcept;

class ByteTokens {
 public:
  // No byte has a token.
  ByteTokens() { ids_.fill(-1); }
  // `id_of` gives the id of a token's text, -1 if there is none.
  explicit ByteTokens(const std::function<std::int32_t(const std::string&)>& id_of);

  // Appends the ids of the bytes; false, appending nothing, if one of them has no token.
  bool append(std::string_view bytes, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] std::vector<std::uint8_t> missing() const;

 private:
  std::array<std::int32_t, 256> ids_;
};

}  // namespace quench
