#pragma once
// What a tokenizer is read from, as a table: files of several kinds, and words in place of a path.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

struct TokenizerKind {
  std::string_view name;     // of the file in a model folder, or the word
  std::string_view summary;  // for help, as what one may give: "a SentencePiece tokenizer.model"
  // Of a word the path is empty. `beside`: names of further files in the folder that are kept with the tokenizer.
  // Throws what load_tokenizer() throws; unsupported lets the folder's next file try.
  std::unique_ptr<Tokenizer> (*open)(const std::filesystem::path& file, const std::vector<std::string>& beside);
  // Files of other names are of the kind whose extension theirs is, else of the table's first.
  std::string_view extension{};
  bool is_word = false;
  // The file of a folder, for kinds whose files have names of their own; empty: it has none. Null: the one of `name`.
  std::filesystem::path (*find)(const std::filesystem::path& folder) = nullptr;
};

// In the order in which the files of a folder are tried.
[[nodiscard]] const ChoiceTable<TokenizerKind>& tokenizer_kinds();
// "tokenizer.json", "tokenizer.model": of the kinds that go by a name.
[[nodiscard]] std::vector<std::string> tokenizer_file_names();
// "bytes"
[[nodiscard]] std::vector<std::string> tokenizer_words();
// Whether a tokenizer's name is a word, no path.
[[nodiscard]] bool is_tokenizer_word(std::string_view name);
// The help of an option for a tokenizer: `paths`, or the words.
[[nodiscard]] std::string tokenizer_option_help(std::string_view paths);
// Whether a tokenizer may be saved to a file of this name: of one of the kinds, or one that stands beside it.
[[nodiscard]] bool is_tokenizer_file(std::string_view name);
// All that may be given, for the help of a config key: the files, a folder with one of them, the words.
[[nodiscard]] std::string tokenizer_choices();
// Why a model folder has none: "the model folder has no tokenizer.json or tokenizer.model".
[[nodiscard]] std::string no_tokenizer_text();
// Whether a folder holds a file of one of the kinds; false for an empty path.
[[nodiscard]] bool holds_tokenizer(const std::filesystem::path& folder);

}  // namespace quench
