#pragma once
// XXH3-64 checksums (https://github.com/Cyan4973/xxHash). Detects corruption, not tampering.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/system/check.h"

namespace quench {

class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline constexpr std::size_t kHashDigits = 16;
// 16 lower-case hex digits, as of xxhsum; the inverse accepts only that.
[[nodiscard]] std::string format_hash(std::uint64_t hash);
[[nodiscard]] std::optional<std::uint64_t> parse_hash(std::string_view text) noexcept;

}  // namespace quench
