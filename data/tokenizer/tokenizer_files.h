#pragma once
// Verbatim files, and settings of companion files.

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

// tokenizer_config.json, special_tokens_map.json and added_tokens.json: settings that affect ids, chat template.
struct TokenizerSettings {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
  std::optional<bool> add_bos_token, add_eos_token, legacy, add_prefix_space;
  std::vector<AddedToken> added_tokens;  // without a tokenizer.json
  // Under any of Transformers' names; unique, in order.
  std::vector<std::string> special_tokens;
  std::optional<Tokenizer::ChatTemplateText> chat_template;
};

class TokenizerFiles {
 public:
  static constexpr std::uint64_t kMaxVocabularyBytes = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kMaxOtherBytes = std::uint64_t{16} << 20;

  // `vocabulary` and, from its folder, companions and `others`.
  static TokenizerFiles read(const std::filesystem::path& vocabulary, const std::vector<std::string>& others = {});
  // Names and contents, vocabulary first. `source`: for errors.
  TokenizerFiles(std::string source, std::vector<std::pair<std::string, std::string>> files);

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] const std::string& vocabulary() const noexcept { return files_.front().second; }
  [[nodiscard]] const TokenizerSettings& settings() const noexcept { return settings_; }
  // Names and contents, vocabulary first.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& files() const noexcept { return files_; }

  // Bytes that affect ids: vocabulary and settings, per file.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // tokenizer.json or tokenizer.model, others by name. All chat templates go into tokenizer_config.json.
  void save(const std::filesystem::path& folder) const;

 private:
  void read_settings();
  [[nodiscard]] std::string config_with_templates() const;

  std::string source_;
  std::vector<std::pair<std::string, std::string>> files_;
  TokenizerSettings settings_;
};

// Tokens that the settings declare special but the vocabulary does not: one token in Transformers, text here.
void warn_of_unmarked_tokens(const Tokenizer& tokenizer, const TokenizerFiles& files);

[[nodiscard]] bool is_tokenizer_companion(std::string_view name) noexcept;

}  // namespace quench
