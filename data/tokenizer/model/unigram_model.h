#pragma once
// The unigram language model of SentencePiece (Kudo 2018): of all ways to cut a piece of text into tokens, the one
// whose scores have the largest sum, found by dynamic programming over the positions in the text.
//
// A character that no token covers alone may be unknown, at ten below the lowest score. Neighbouring unknown characters
// are one token: the bytes' tokens with byte fallback, else the unknown token.
//
// A piece of n bytes takes O(n m), m being the length of the longest token.

#include <string>
#include <unordered_map>

#include "data/tokenizer/model/byte_tokens.h"
#include "data/tokenizer/model/pair_table.h"
#include "data/tokenizer/model/token_model.h"

namespace quench {

struct UnigramDefinition {
  struct Token {
    std::string text;  // unique, 1 to kMaxTokenBytes bytes
    double score = 0;  // a logarithm; finite
  };
  static constexpr std::size_t kMaxTokenBytes = 1024;
  std::vector<Token> tokens;  // by id
  std::int32_t unk_id = 0;
  bool byte_fallback = false;
};

class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(UnigramDefinition definition);

  [[nodiscard]] std::unique_ptr<Workspace> make_workspace() const override;
  void encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const override;
  void encode_other(std::string_view bytes, Workspace& workspace, std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] std::vector<std::uint8_t> missing_bytes() const override { return byte_tokens_.missing(); }

 private:
  struct Node;  // the best way to reach a position
  class Memory;

  void find_best_path(std::string_view piece, std::vector<Node>& nodes) const;
  void append_ids(std::string_view piece, const std::vector<Node>& nodes, std::vector<std::int32_t>& ids) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::unordered_map<std::string, std::int32_t> ids_;  // by text
  std::vector<double> scores_;                         // by id
  PairTable edges_;                                    // of a trie over the tokens' bytes: (node, byte) to node
  std::vector<std::int32_t> ends_;                     // by node: the token that ends there, -1 for none
  ByteTokens byte_tokens_;
  double unk_score_;
  std::int32_t unk_id_;
};

}  // namespace quench
