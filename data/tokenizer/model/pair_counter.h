#pragma once
// BPE training: pieces as linked lists of ids, with incremental counts and positions of adjacent pairs. A merge costs
// its occurrences.

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

  // Symbols are bytes, ids 0 to 255.
  void add_piece(std::string_view piece, std::int64_t count);

  // Ties by smaller ids; nullopt below min_count (> 0). After the last piece.
  [[nodiscard]] std::optional<Pair> most_frequent(std::int64_t min_count);

  // Leftmost first within a piece.
  void merge(std::int32_t left, std::int32_t right, std::int32_t result);

 private:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  static constexpr std::int32_t kGone = -1;

  struct Symbol {
    std::int32_t id;
    std::uint32_t previous, next;  // kEnd at a piece's ends
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
  std::vector<std::uint64_t> grown_;  // pairs above their queue entry
  // Upper bounds; stale entries are corrected on pop.
  std::priority_queue<Pair, std::vector<Pair>, LessFrequent> queue_;
};

}  // namespace quench
