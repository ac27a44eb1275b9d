#pragma once
// The files that make up a tokenizer, held as they were read, and what the small ones beside the vocabulary say.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json/json.h"
#include "data/tokenizer/text/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

// tokenizer_config.json, special_tokens_map.json and added_tokens.json, as far as ids depend on them, and the chat
// template.
struct TokenizerSettings {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  std::optional<bool> add_bos_token, add_eos_token, legacy, add_prefix_space;
  std::vector<AddedToken> added_tokens;  // of tokenizers without a tokenizer.json
  // All that the settings call special, by any of Transformers' names; each once, in order.
  std::vector<std::string> special_tokens;
  std::optional<Tokenizer::ChatTemplateText> chat_template;
};

class TokenizerFiles {
 public:
  static constexpr std::uint64_t kMaxVocabularyBytes = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kMaxOtherBytes = std::uint64_t{16} << 20;

  // Reads `vocabulary` and those of the usual companions, and of `others`, that stand beside it.
  static TokenizerFiles read(const std::filesystem::path& vocabulary, const std::vector<std::string>& others = {});
  // Files made in memory: names and contents, the vocabulary first. `source` names them in errors.
  TokenizerFiles(std::string source, std::vector<std::pair<std::string, std::string>> files);

  // How errors call the vocabulary file.
  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  // The vocabulary file's contents.
  [[nodiscard]] const std::string& vocabulary() const noexcept { return files_.front().second; }
  [[nodiscard]] const TokenizerSettings& settings() const noexcept { return settings_; }

  // Of all bytes on which ids depend: the vocabulary, and the settings file by file.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // The vocabulary as tokenizer.json or tokenizer.model, whatever its file was called; the others by their names. Chat
  // templates of additional_chat_templates/ are written into tokenizer_config.json, with all others.
  void save(const std::filesystem::path& folder) const;

 private:
  void read_settings();
  [[nodiscard]] std::string config_with_templates() const;

  std::string source_;
  std::vector<std::pair<std::string, std::string>> files_;  // name, contents
  TokenizerSettings settings_;
};

// One warning that names the tokens which the settings call special and the vocabulary does not: Transformers encodes
// them as one token each, and here they are text.
void warn_of_unmarked_tokens(const Tokenizer& tokenizer, const TokenizerFiles& files);

// Whether files of this name are read and saved with a vocabulary.
[[nodiscard]] bool is_tokenizer_companion(std::string_view name) noexcept;

}  // namespace quench
