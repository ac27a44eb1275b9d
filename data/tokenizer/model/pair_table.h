#pragma once
// The merge table: from a pair of neighbouring token ids to its rank and what it becomes. Open addressing with linear
// probing at a load of at most one half, 16 bytes an entry: encoding spends most of its time here.

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

  // Returns false, changing nothing, if the pair is there already. At most `pair_count` pairs fit.
  bool insert(std::int32_t left, std::int32_t right, Entry entry) {
    const std::uint64_t key = pair_key(left, right);
    std::size_t slot = first_slot(key);
    for (; slots_[slot].entry.rank != kNoRank; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key) return false;
    }
    slots_[slot] = {key, entry};
    return true;
  }

  // rank is kNoRank if the pair does not merge.
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
  // Fibonacci hashing of the two halves folded together; a table of one slot (shift 64) has only slot 0.
  [[nodiscard]] std::size_t first_slot(std::uint64_t key) const {
    const std::uint64_t mixed = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15u;
    return shift_ == 64 ? 0 : static_cast<std::size_t>(mixed >> shift_);
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace quench
