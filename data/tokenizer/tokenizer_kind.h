#pragma once
// Tokenizer sources: file kinds, keywords.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

struct TokenizerKind {
  std::string_view name;     // file name, or keyword
  std::string_view summary;  // "a SentencePiece tokenizer.model"
  // Empty path for a keyword. Second argument: further files kept with the tokenizer. Throws the errors of
  // load_tokenizer(); on unsupported the folder's next file is tried.
  std::unique_ptr<Tokenizer> (*open)(const std::filesystem::path& file, const std::vector<std::string>& beside);
  // Other file names: by extension, else the table's first.
  std::string_view extension{};
  bool is_word = false;
  // Variable file names; or empty. Null: `name`.
  std::filesystem::path (*find)(const std::filesystem::path& folder) = nullptr;
};

// In order of trial.
[[nodiscard]] const ChoiceTable<TokenizerKind>& tokenizer_kinds();
// "tokenizer.json", "tokenizer.model".
[[nodiscard]] std::vector<std::string> tokenizer_file_names();
// "bytes"
[[nodiscard]] std::vector<std::string> tokenizer_words();
// True for a keyword.
[[nodiscard]] bool is_tokenizer_word(std::string_view name);
// Help text of a tokenizer option.
[[nodiscard]] std::string tokenizer_option_help(std::string_view paths);
// File name of a kind, or a companion.
[[nodiscard]] bool is_tokenizer_file(std::string_view name);
// For help: files, folder, keywords.
[[nodiscard]] std::string tokenizer_choices();
// "the model folder has no tokenizer.json or tokenizer.model".
[[nodiscard]] std::string no_tokenizer_text();
// False for an empty path.
[[nodiscard]] bool holds_tokenizer(const std::filesystem::path& folder);

}  // namespace quench
