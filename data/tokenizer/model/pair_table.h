#pragma once
// BPE merges: pair of ids -> rank and merged id. Open addressing, linear probing, load <= 1/2, 16 bytes per entry: the
// hot path of encoding.

#include <bit>
#include <cstdint>
#include <vector>

namespace quench {

class PairTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;

  struct Entry {
    std::uint32_t rank = kNoRank;
    std::int32_t result = -1;
  };

  explicit PairTable(std::size_t pair_count)
      : slots_(std::bit_ceil(2 * pair_count + 1)), shift_(64 - std::countr_zero(slots_.size())) {}

  // False for a duplicate. Capacity: `pair_count`.
  bool insert(std::int32_t left, std::int32_t right, Entry entry) {
    const std::uint64_t key = pair_key(left, right);
    std::size_t slot = first_slot(key);
    for (; slots_[slot].entry.rank != kNoRank; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key) return false;
    }
    slots_[slot] = {key, entry};
    return true;
  }

  [[nodiscard]] Entry find(std::int32_t left, std::int32_t right) const noexcept {
    const std::uint64_t key = pair_key(left, right);
    std::size_t slot = first_slot(key);
    while (slots_[slot].entry.rank != kNoRank && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    return slots_[slot].entry;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Entry entry;
  };

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  // Fibonacci hashing of folded halves; one slot (shift 64): 0.
  [[nodiscard]] std::size_t first_slot(std::uint64_t key) const {
    const std::uint64_t mixed = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15u;
    return shift_ == 64 ? 0 : static_cast<std::size_t>(mixed >> shift_);
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace quench
