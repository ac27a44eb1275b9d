#pragma once
// Direct-mapped cache of short pieces: most of a text is a few thousand words.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <xxhash.h>

namespace quench {

class WordCache {
 public:
  // False if absent.
  bool find(std::string_view piece, std::vector<std::int32_t>& ids) const {
    if (entries_.empty() || piece.size() > kMaxBytes) return false;
    const Entry& entry = entries_[slot(piece)];
    if (entry.size != piece.size() || std::memcmp(entry.bytes.data(), piece.data(), piece.size()) != 0) return false;
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return true;
  }

  // Unless above the length or id limit.
  void store(std::string_view piece, std::span<const std::int32_t> ids) {
    if (piece.empty() || piece.size() > kMaxBytes || ids.size() > kMaxIds) return;
    if (entries_.empty()) entries_.resize(kSlots);
    Entry& entry = entries_[slot(piece)];
    entry.size = static_cast<std::uint8_t>(piece.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.bytes.data(), piece.data(), piece.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr std::size_t kSlots = 8192;  // 512 KiB: fits in L2
  static constexpr std::size_t kMaxBytes = 22;
  static constexpr std::size_t kMaxIds = 10;

  struct alignas(64) Entry {
    std::uint8_t size = 0;  // 0: empty
    std::uint8_t count = 0;
    std::array<char, kMaxBytes> bytes;
    std::array<std::int32_t, kMaxIds> ids;
  };
  static_assert(sizeof(Entry) == 64);

  static std::size_t slot(std::string_view piece) { return XXH3_64bits(piece.data(), piece.size()) % kSlots; }

  std::vector<Entry> entries_;
};

}  // namespace quench
