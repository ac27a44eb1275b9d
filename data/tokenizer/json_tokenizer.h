#pragma once
// tokenizer.json: byte-level BPE (Llama 3 and 4, Qwen, GPT-2, Mistral's Tekken and others), converted SentencePiece:
// character-level BPE (Llama 2, Mistral 7B) and unigram.

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/model/token_model.h"
#include "data/tokenizer/text/added_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"

namespace quench {

class JsonTokenizer final : public Tokenizer {
 public:
  // Throws the errors of read_tokenizer_json.
  explicit JsonTokenizer(TokenizerFiles files);
  ~JsonTokenizer() override;

  using Tokenizer::encode;
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] std::int64_t vocab_size() const override;
  [[nodiscard]] std::string token_text(std::int32_t id) const override;
  [[nodiscard]] std::optional<std::int32_t> find_token(std::string_view bytes) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override;
  [[nodiscard]] bool has_byte_fallback() const override { return !description_.decoder.is_byte_level(); }
  [[nodiscard]] std::vector<std::uint8_t> bytes_without_token() const override;
  [[nodiscard]] std::uint64_t fingerprint() const override;
  [[nodiscard]] std::unique_ptr<Tokenizer> with_tokens(std::span<const NewToken> tokens) const override;
  void save(const std::filesystem::path& folder) const override;

 protected:
  bool append_text(std::int32_t id, bool at_start, std::string& text) const override;

 private:
  class WorkspaceLease;

  // The description is read before the files are moved.
  JsonTokenizer(TokenizerFiles&& files, TokenizerDescription description);
  void add_tokens(std::vector<AddedToken> tokens);
  void choose_special_ids();
  [[nodiscard]] std::optional<std::int32_t> first_of(std::initializer_list<std::string_view> contents) const;
  // Well-formed text between added tokens of raw text.
  void encode_text(std::string_view text, PreTokenizer::Place place, const EncodeOptions& options,
                   TokenModel::Workspace& workspace, std::vector<std::int32_t>& ids) const;

  TokenizerFiles files_;
  TokenizerDescription description_;  // without added tokens
  AddedTokens raw_tokens_, normalized_tokens_;
  std::unordered_map<std::int32_t, AddedToken> added_by_id_;
  std::unordered_map<std::string, std::int32_t> ids_by_text_;
  std::int64_t vocab_size_ = 0;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TokenModel::Workspace>> idle_workspaces_;
};

}  // namespace quench
