#pragma once
// A byte-level BPE tokenizer as described by a tokenizer.json: Llama 3 and 4, Qwen, GPT-2, Mistral's Tekken and others.

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"

namespace quench {

class BpeTokenizer final : public Tokenizer {
 public:
  // The vocabulary file is a tokenizer.json. Throws what read_tokenizer_json throws.
  explicit BpeTokenizer(TokenizerFiles files);
  ~BpeTokenizer() override;

  using Tokenizer::encode;
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const override;
  [[nodiscard]] std::int64_t vocab_size() const override;
  [[nodiscard]] std::string token_text(std::int32_t id) const override;
  [[nodiscard]] std::optional<std::int32_t> find_token(std::string_view bytes) const override;
  [[nodiscard]] bool is_special(std::int32_t id) const override;
  [[nodiscard]] std::uint64_t fingerprint() const override;
  void save(const std::filesystem::path& folder) const override;

 protected:
  bool append_text(std::int32_t id, bool at_start, std::string& text) const override;

 private:
  class WorkspaceLease;

  // By reference: the description is read from the files before they are taken.
  BpeTokenizer(TokenizerFiles&& files, TokenizerDescription description);
  void add_tokens(std::vector<AddedToken> tokens);
  void choose_special_ids();
  [[nodiscard]] std::optional<std::int32_t> first_of(std::initializer_list<std::string_view> contents) const;
  // Text between added tokens that were found in the text as it is.
  void encode_text(std::string_view text, const EncodeOptions& options, BpeModel::Workspace& workspace,
                   std::vector<std::int32_t>& ids) const;

  TokenizerFiles files_;
  BpeModel model_;
  PreTokenizer pre_tokenizer_;
  bool normalize_nfc_;
  AddedTokens raw_tokens_, normalized_tokens_;
  std::unordered_map<std::int32_t, AddedToken> added_by_id_;
  std::vector<std::int32_t> prefix_, suffix_;
  std::unordered_map<std::string, std::int32_t> ids_by_text_;
  std::int64_t vocab_size_ = 0;

  mutable std::mutex mutex_;  // guards idle_workspaces_
  mutable std::vector<std::unique_ptr<BpeModel::Workspace>> idle_workspaces_;
};

}  // namespace quench
