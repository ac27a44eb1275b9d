#pragma once
// SentencePiece (tokenizer.model) of Llama 2, TinyLlama and Mistral 7B, as Hugging Face's LlamaTokenizer: the dummy
// prefix (space) only at the start of the text, with `legacy` in tokenizer_config.json also after special tokens; BOS
// by default. With treat_whitespace_as_suffix, that space is at the end of the text, or before special tokens.

#include <sentencepiece_processor.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/text/added_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace quench {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Throws corrupt for a model that the library rejects, or a contradicting added token.
  explicit SentencePieceTokenizer(TokenizerFiles files);

  using Tokenizer::encode;
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] std::int64_t vocab_size() const override;
  [[nodiscard]] std::string token_text(std::int32_t id) const override;
  [[nodiscard]] std::optional<std::int32_t> find_token(std::string_view bytes) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override;
  [[nodiscard]] bool has_byte_fallback() const override { return true; }
  [[nodiscard]] std::uint64_t fingerprint() const override;
  [[nodiscard]] std::unique_ptr<Tokenizer> with_tokens(std::span<const NewToken> tokens) const override;
  void save(const std::filesystem::path& folder) const override;

 protected:
  bool append_text(std::int32_t id, bool at_start, std::string& text) const override;
  [[nodiscard]] bool has_final_space(std::int32_t id) const override;

 private:
  void load_processors();
  void collect_added_tokens();
  // `with_space`: the dummy prefix, or the space at the end in its place.
  void encode_text(std::string_view text, bool with_space, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] bool is_piece(std::int32_t id) const { return id >= 0 && id < processor_.GetPieceSize(); }

  TokenizerFiles files_;
  sentencepiece::SentencePieceProcessor processor_;
  sentencepiece::SentencePieceProcessor prefixless_processor_;  // without the dummy prefix
  bool has_dummy_prefix_ = false;
  bool has_dummy_suffix_ = false;       // treat_whitespace_as_suffix
  std::vector<std::int32_t> byte_ids_;  // <0x00> to <0xFF>; empty unless all exist
  AddedTokens added_;
  std::unordered_map<std::int32_t, AddedToken> added_by_id_;
  std::int64_t vocab_size_ = 0;
};

}  // namespace quench
