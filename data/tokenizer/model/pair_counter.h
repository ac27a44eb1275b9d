#pragma once
// Inner loop of BPE training: pieces as linked lists of token ids, with incremental counts and positions of all
// adjacent pairs. A merge costs time proportional to its occurrences.

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

  // Adds a piece with frequency `count`; its symbols are bytes, ids 0 to 255.
  void add_piece(std::string_view piece, std::int64_t count);

  // Most frequent pair, ties by smaller ids; nullopt if none reaches min_count (> 0). Requires all pieces added.
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
    std::vector<std::uint32_t> places;  // left symbols; may be stale
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
  std::vector<std::uint64_t> grown_;  // keys of pairs with a count above their queue entry
  // Upper bounds: every pair has an entry with at least its count; stale entries are corrected on pop.
  std::priority_queue<Pair, std::vector<Pair>, LessFrequent> queue_;
};

}  // namespace quench
