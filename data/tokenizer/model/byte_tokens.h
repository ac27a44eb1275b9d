#pragma once
// Byte fallback tokens <0x00> to <0xFF>.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quench {

[[nodiscard]] std::string byte_token(std::uint8_t byte);  // "<0x0A>"

// "<0x0A>" or "<0x0a>"; nullopt for others.
[[nodiscard]] std::optional<std::uint8_t> byte_of_token(std::string_view text) noexcept;

class ByteTokens {
 public:
  ByteTokens() { ids_.fill(-1); }
  // `id_of`: -1 for none.
  explicit ByteTokens(const std::function<std::int32_t(const std::string&)>& id_of);

  // False, and nothing appended, if one has no token.
  bool append(std::string_view bytes, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] std::vector<std::uint8_t> missing() const;

 private:
  std::array<std::int32_t, 256> ids_;
};

}  // namespace quench
