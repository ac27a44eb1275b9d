#pragma once
// Byte-pair encoding of one piece of text: from its bytes, repeatedly merge the neighbouring pair of the lowest rank,
// the leftmost of equals, until no pair is in the table (Sennrich, Haddow, Birch 2016, on bytes).
//
// A piece of n bytes takes O(n log n) whatever it holds. Encoding is const and thread-safe with one workspace a thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/pair_table.h"
#include "data/tokenizer/word_cache.h"

namespace quench {

struct BpeMerge {
  std::int32_t left = 0, right = 0;  // ids of the neighbours
  std::int32_t result = 0;           // id of their concatenation
};

struct BpeDefinition {
  struct Token {
    std::string bytes;       // empty: no token has this id
    bool mergeable = false;  // false: its text is not in the byte alphabet, so that no piece of text can match it
  };
  std::vector<Token> tokens;           // by id
  std::vector<BpeMerge> merges;        // in order of rank; ids are those of mergeable tokens
  bool ignore_merges = false;          // a piece that is a token becomes that token, whatever the merges say
  std::optional<std::int32_t> unk_id;  // for bytes that have no token; without it such bytes are dropped
  bool fuse_unk = false;               // one unk_id for neighbouring such bytes
};

class BpeModel {
 public:
  explicit BpeModel(BpeDefinition definition);
  BpeModel(const BpeModel&) = delete;
  BpeModel& operator=(const BpeModel&) = delete;

  // Reusable memory of one thread, for any number of pieces of one model.
  class Workspace {
   private:
    friend class BpeModel;
    struct Symbol {
      std::int32_t id;
      std::uint32_t previous, next;  // neighbours among the symbols left; kEnd at the ends
      std::uint32_t rank;            // of the pair with `next`; kNoRank if it does not merge, or this symbol is gone
      std::int32_t merged;           // what that pair becomes
    };
    std::vector<Symbol> symbols_;
    std::vector<std::uint64_t> heap_;  // rank << 32 | index of the left symbol: smallest first
    WordCache cache_;
  };

  // Appends the ids of a piece. Throws invalid_argument for a piece of 4 GiB or more.
  void encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const;

  [[nodiscard]] const std::vector<BpeDefinition::Token>& tokens() const noexcept { return tokens_; }
  // The bytes that have no token of their own, in order.
  [[nodiscard]] std::vector<std::uint8_t> missing_bytes() const;

 private:
  void merge(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const;
  void split_to_bytes(std::string_view piece, Workspace& workspace) const;

  std::vector<BpeDefinition::Token> tokens_;
  std::unordered_map<std::string_view, std::int32_t> whole_pieces_;  // views into tokens_; only with ignore_merges
  PairTable pairs_;
  std::vector<std::int32_t> byte_ids_;  // -1: no token
  std::optional<std::int32_t> unk_id_;
  bool fuse_unk_;
};

}  // namespace quench
