#pragma once
// Tokenizer files, kept verbatim, and the settings of the companion files.

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

// tokenizer_config.json, special_tokens_map.json and added_tokens.json: settings that affect ids, and the chat
// template.
struct TokenizerSettings {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  std::optional<bool> add_bos_token, add_eos_token, legacy, add_prefix_space;
  std::vector<AddedToken> added_tokens;  // for tokenizers without a tokenizer.json
  // Special tokens under any of Transformers' names; unique, in order.
  std::vector<std::string> special_tokens;
  std::optional<Tokenizer::ChatTemplateText> chat_template;
};

class TokenizerFiles {
 public:
  static constexpr std::uint64_t kMaxVocabularyBytes = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kMaxOtherBytes = std::uint64_t{16} << 20;

  // Reads `vocabulary` and, from its folder, the usual companions and `others`.
  static TokenizerFiles read(const std::filesystem::path& vocabulary, const std::vector<std::string>& others = {});
  // In-memory files: names and contents, vocabulary first. `source`: name in errors.
  TokenizerFiles(std::string source, std::vector<std::pair<std::string, std::string>> files);

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] const std::string& vocabulary() const noexcept { return files_.front().second; }
  [[nodiscard]] const TokenizerSettings& settings() const noexcept { return settings_; }

  // Hash of all bytes that affect ids: vocabulary and settings, per file.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // Writes the vocabulary as tokenizer.json or tokenizer.model, the others by name. All chat templates, including
  // additional_chat_templates/, are written into tokenizer_config.json.
  void save(const std::filesystem::path& folder) const;

 private:
  void read_settings();
  [[nodiscard]] std::string config_with_templates() const;

  std::string source_;
  std::vector<std::pair<std::string, std::string>> files_;
  TokenizerSettings settings_;
};

// One warning for tokens that the settings declare special but the vocabulary does not: Transformers encodes each as
// one token, here they are text.
void warn_of_unmarked_tokens(const Tokenizer& tokenizer, const TokenizerFiles& files);

[[nodiscard]] bool is_tokenizer_companion(std::string_view name) noexcept;

}  // namespace quench
