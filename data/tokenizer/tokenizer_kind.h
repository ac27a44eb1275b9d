#pragma once
// Registry of tokenizer sources: file kinds, and keywords in place of a path.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

struct TokenizerKind {
  std::string_view name;     // file name in a model folder, or keyword
  std::string_view summary;  // for help: "a SentencePiece tokenizer.model"
  // Empty path for a keyword. Second argument: further files of the folder kept with the tokenizer. Throws the errors
  // of load_tokenizer(); on unsupported the folder's next file is tried.
  std::unique_ptr<Tokenizer> (*open)(const std::filesystem::path& file, const std::vector<std::string>& beside);
  // Other file names select the kind by extension, else the table's first.
  std::string_view extension{};
  bool is_word = false;
  // File in a folder, for kinds with variable file names; empty: none. Null: `name`.
  std::filesystem::path (*find)(const std::filesystem::path& folder) = nullptr;
};

// In the order of trial in a folder.
[[nodiscard]] const ChoiceTable<TokenizerKind>& tokenizer_kinds();
// Kinds with a fixed name: "tokenizer.json", "tokenizer.model".
[[nodiscard]] std::vector<std::string> tokenizer_file_names();
// "bytes"
[[nodiscard]] std::vector<std::string> tokenizer_words();
[[nodiscard]] bool is_tokenizer_word(std::string_view name);
[[nodiscard]] std::string tokenizer_option_help(std::string_view paths);
// True for file names a tokenizer may be saved to: of a kind, or a companion.
[[nodiscard]] bool is_tokenizer_file(std::string_view name);
// All valid values, for config key help: files, folder, keywords.
[[nodiscard]] std::string tokenizer_choices();
// Error text: "the model folder has no tokenizer.json or tokenizer.model".
[[nodiscard]] std::string no_tokenizer_text();
// True if the folder has a tokenizer file; false for an empty path.
[[nodiscard]] bool holds_tokenizer(const std::filesystem::path& folder);

}  // namespace quench
