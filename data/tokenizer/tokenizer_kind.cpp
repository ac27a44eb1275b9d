#include "data/tokenizer/tokenizer_kind.h"

#include <algorithm>
#include <exception>

#include "core/system/missing_path.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

template <class T>
std::unique_ptr<Tokenizer> open_files(const fs::path& file, const std::vector<std::string>& beside) {
  return std::make_unique<T>(TokenizerFiles::read(file, beside));
}

std::unique_ptr<Tokenizer> open_bytes(const fs::path&, const std::vector<std::string>&) {
  return make_byte_tokenizer();
}

std::vector<std::string> kind_names(bool words) {
  std::vector<std::string> names;
  for (const TokenizerKind& kind : tokenizer_kinds())
    if (kind.is_word == words && kind.find == nullptr) names.emplace_back(kind.name);
  return names;
}

fs::path file_in(const fs::path& folder, const TokenizerKind& kind) {
  if (kind.is_word) return {};
  if (kind.find != nullptr) return kind.find(folder);
  fs::path file = folder / kind.name;
  return fs::exists(file) ? file : fs::path();
}

// Advice on a tokenizer of another kind, or nothing.
std::string other_tokenizer_text(const fs::path& folder) {
  if (fs::exists(folder / "tekken.json"))
    return "; Mistral's tekken.json is not read: use the tokenizer.json of the model's folder for Transformers";
  if (fs::exists(folder / "vocab.json"))
    return "; it has vocab.json: Transformers' AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes "
           "its tokenizer.json";
  return {};
}

// Unsupported files are kept along for other programs.
std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  std::exception_ptr refused;
  for (const TokenizerKind& kind : tokenizer_kinds()) {
    const fs::path file = file_in(folder, kind);
    if (file.empty()) continue;
    std::vector<std::string> beside = tokenizer_file_names();
    std::erase(beside, kind.name);
    try {
      return kind.open(file, beside);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      refused = std::current_exception();
    }
  }
  if (refused) std::rethrow_exception(refused);
  QUENCH_FAIL(ErrorCode::not_found, "{}: the folder holds neither {}{}", folder.string(),
              fmt::join(tokenizer_file_names(), " nor "), other_tokenizer_text(folder));
}

const TokenizerKind& kind_of_file(const fs::path& file) {
  const std::string extension = file.extension().string();
  for (const TokenizerKind& kind : tokenizer_kinds())
    if (!kind.is_word && !extension.empty() && kind.extension == extension) return kind;
  return tokenizer_kinds().front();
}

}  // namespace

const ChoiceTable<TokenizerKind>& tokenizer_kinds() {
  static const ChoiceTable<TokenizerKind> table(
      "tokenizer",
      {{"tokenizer.json", "a tokenizer.json", open_files<JsonTokenizer>, ".json"},
       {"tokenizer.model", "a SentencePiece tokenizer.model", open_files<SentencePieceTokenizer>, ".model"},
       {.name = "bytes", .summary = "the word bytes (a token a byte)", .open = open_bytes, .is_word = true}});
  return table;
}

std::vector<std::string> tokenizer_file_names() {
  return kind_names(false);
}

std::vector<std::string> tokenizer_words() {
  return kind_names(true);
}

bool is_tokenizer_word(std::string_view name) {
  const TokenizerKind* kind = tokenizer_kinds().find(name);
  return kind != nullptr && kind->is_word;
}

bool is_tokenizer_file(std::string_view name) {
  const TokenizerKind* kind = tokenizer_kinds().find(name);
  return (kind != nullptr && !kind->is_word) || is_tokenizer_companion(name);
}

std::string tokenizer_option_help(std::string_view paths) {
  std::string text(paths);
  for (const std::string& word : tokenizer_words()) text += fmt::format(", or \"{}\"", word);
  return text;
}

std::string tokenizer_choices() {
  std::string files, words;
  for (const TokenizerKind& kind : tokenizer_kinds())
    (kind.is_word ? words : files) += fmt::format("{}{}",
                                                  kind.is_word    ? ", or "
                                                  : files.empty() ? ""
                                                                  : ", ",
                                                  kind.summary);
  return fmt::format("{}, a folder with one of them{}", files, words);
}

std::string no_tokenizer_text() {
  return fmt::format("the model folder has no {}", fmt::join(tokenizer_file_names(), " or "));
}

bool holds_tokenizer(const fs::path& folder) {
  return !folder.empty() && std::ranges::any_of(tokenizer_kinds(), [&](const TokenizerKind& kind) {
    return !file_in(folder, kind).empty();
  });
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  if (is_tokenizer_word(path.string())) return tokenizer_kinds().find(path.string())->open({}, {});
  if (fs::is_directory(path)) return load_folder(path);
  QUENCH_CHECK_AS(
      ErrorCode::not_found, fs::exists(path), "{}: no such file or folder{}; expected {}", path.string(),
      missing_path_text(path),
      tokenizer_option_help(fmt::format("a {}, a folder that holds one", fmt::join(tokenizer_file_names(), ", a "))));
  return kind_of_file(path).open(path, {});
}

}  // namespace quench
