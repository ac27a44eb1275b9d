#include "data/tokenizer/model/byte_tokens.h"

#include <fmt/format.h>

#include <charconv>

namespace quench {

std::string byte_token(std::uint8_t byte) {
  return fmt::format("<0x{:02X}>", byte);
}

std::optional<std::uint8_t> byte_of_token(std::string_view text) noexcept {
  if (text.size() != 6 || !text.starts_with("<0x") || !text.ends_with('>')) return std::nullopt;
  std::uint8_t byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  return error == std::errc{} && end == text.data() + 5 ? std::optional(byte) : std::nullopt;
}

ByteTokens::ByteTokens(const std::function<std::int32_t(const std::string&)>& id_of) {
  for (std::size_t byte = 0; byte < ids_.size(); ++byte)
    ids_[byte] = id_of(byte_token(static_cast<std::uint8_t>(byte)));
}

bool ByteTokens::append(std::string_view bytes, std::vector<std::int32_t>& ids) const {
  const std::size_t start = ids.size();
  for (const char byte : bytes) {
    const std::int32_t id = ids_[static_cast<std::uint8_t>(byte)];
    if (id < 0) {
      ids.resize(start);
      return false;
    }
    ids.push_back(id);
  }
  return true;
}

std::vector<std::uint8_t> ByteTokens::missing() const {
  std::vector<std::uint8_t> missing;
  for (std::size_t byte = 0; byte < ids_.size(); ++byte) {
    if (ids_[byte] < 0) missing.push_back(static_cast<std::uint8_t>(byte));
  }
  return missing;
}

}  // namespace quench
