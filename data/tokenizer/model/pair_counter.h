#pragma once
// The inner loop of BPE training: pieces of text as chains of token ids, with the count and the places of every pair of
// neighbours kept up to date as pairs are merged. A merge costs time in the number of its places, whatever their
// pieces.

#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quench {

class PairCounter {
 public:
  struct Pair {
    std::int32_t left, right;
    std::int64_t count;
  };

  // Adds a piece that occurs `count` times; its symbols are its bytes, with ids 0 to 255.
  void add_piece(std::string_view piece, std::int64_t count);

  // The most frequent pair, the one of smaller ids among equals; nullopt if none occurs min_count (> 0) times.
  // All pieces must have been added.
  [[nodiscard]] std::optional<Pair> most_frequent(std::int64_t min_count);

  // Replaces every occurrence of the pair by `result`, leftmost first within a piece.
  void merge(std::int32_t left, std::int32_t right, std::int32_t result);

 private:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  static constexpr std::int32_t kGone = -1;

  struct Symbol {
    std::int32_t id;
    std::uint32_t previous, next;  // kEnd at the ends of a piece
    std::uint32_t piece;
  };
  struct Occurrences {
    std::int64_t count = 0;
    std::vector<std::uint32_t> places;  // left symbols, some of which may have changed since
  };
  struct LessFrequent {
    bool operator()(const Pair& a, const Pair& b) const {
      if (a.count != b.count) return a.count < b.count;
      return a.left != b.left ? a.left > b.left : a.right > b.right;
    }
  };

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  void add_occurrence(std::uint32_t place);
  void remove_occurrence(std::uint32_t place);

  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> piece_counts_;
  std::unordered_map<std::uint64_t, Occurrences> pairs_;
  std::vector<std::uint64_t> grown_;  // keys of pairs that are more frequent than the queue knows
  // Holds, for every pair, an entry with a count not below its own; entries that are wrong are corrected when met.
  std::priority_queue<Pair, std::vector<Pair>, LessFrequent> queue_;
};

}  // namespace quench
