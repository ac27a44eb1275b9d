#pragma once
// BPE of a piece: from bytes or characters, merge the adjacent pair of lowest rank, leftmost first (Sennrich, Haddow,
// Birch 2016). O(n log n) for n bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/model/byte_tokens.h"
#include "data/tokenizer/model/pair_table.h"
#include "data/tokenizer/model/token_model.h"

namespace quench {

struct BpeMerge {
  std::int32_t left = 0, right = 0;  // pair
  std::int32_t result = 0;
};

struct BpeDefinition {
  struct Token {
    std::string bytes;       // or empty
    bool mergeable = false;  // false: outside the byte alphabet, never matched
  };
  bool byte_level = true;              // bytes; false: characters
  std::vector<Token> tokens;           // by id
  std::vector<BpeMerge> merges;        // by rank; mergeable tokens
  bool ignore_merges = false;          // a piece that is a token is that token
  bool byte_fallback = false;          // for a character without a token, if all exist
  std::optional<std::int32_t> unk_id;  // for others without a token; unset: dropped
  bool fuse_unk = false;               // one per run
};

class BpeModel final : public TokenModel {
 public:
  explicit BpeModel(const BpeDefinition& definition);

  [[nodiscard]] std::unique_ptr<Workspace> make_workspace() const override;
  // Throws invalid_argument from 4 GiB on. Byte-level pieces may be any bytes.
  void encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const override;
  void encode_other(std::string_view bytes, Workspace& workspace, std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] std::vector<std::uint8_t> missing_bytes() const override;

 private:
  struct Symbol;
  class Memory;

  void merge(std::string_view piece, Memory& memory, std::vector<std::int32_t>& ids) const;
  void split_to_bytes(std::string_view piece, Memory& memory) const;
  void split_to_characters(std::string_view piece, Memory& memory) const;

  bool byte_level_;
  std::unordered_map<std::string, std::int32_t> whole_pieces_;  // for ignore_merges
  PairTable pairs_;
  std::vector<std::int32_t> symbol_ids_;  // by byte or code point; -1 or beyond the end: none
  ByteTokens byte_tokens_;                // for byte_fallback
  std::optional<std::int32_t> unk_id_;
  bool fuse_unk_;
};

}  // namespace quench
