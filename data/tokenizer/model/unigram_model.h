#pragma once
// SentencePiece unigram model (Kudo 2018): segmentation of largest score sum (Viterbi), O(n m) for n bytes and longest
// token m. A character without a token may be unknown, at the lowest score minus ten. Adjacent unknown characters form
// byte tokens with byte fallback, else one unknown token.

#include <string>
#include <unordered_map>

#include "data/tokenizer/model/byte_tokens.h"
#include "data/tokenizer/model/pair_table.h"
#include "data/tokenizer/model/token_model.h"

namespace quench {

struct UnigramDefinition {
  struct Token {
    std::string text;  // 1 to kMaxTokenBytes bytes
    double score = 0;  // log probability, finite
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
  struct Node;  // up to a position
  class Memory;

  void find_best_path(std::string_view piece, std::vector<Node>& nodes) const;
  void append_ids(std::string_view piece, const std::vector<Node>& nodes, std::vector<std::int32_t>& ids) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<double> scores_;      // by id
  PairTable edges_;                 // trie over bytes: (node, byte) to node
  std::vector<std::int32_t> ends_;  // token ending at the node; -1: none
  ByteTokens byte_tokens_;
  double unk_score_;
  std::int32_t unk_id_;
};

}  // namespace quench
