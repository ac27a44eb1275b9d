#pragma once
// Model folder files other than weights.

#include <filesystem>

#include "data/tokenizer/tokenizer.h"
#include "train/model_folder/token_ids.h"

namespace quench {

// Source folders; paths may be empty.
struct SmallFiles {
  std::filesystem::path model;             // licences and generation_config.json
  std::filesystem::path tokenizer_folder;  // chat template and other tokenizer files
  const Tokenizer* tokenizer = nullptr;    // writes its own files; null: copies those of tokenizer_folder
  std::string chat_template;               // Jinja; overrides the tokenizer's template; empty: no override
  // Token ids of generation_config.json, other members from `model`; unset: ids of `model`, else of config.json.
  std::optional<TokenIds> generation_ids;
};

// Writes config.json and the small files to `to`.
void write_small_files(const Json& config, const SmallFiles& files, const std::filesystem::path& to);

// Adds a tokenizer_config.json with the special tokens to a lone tokenizer.json; otherwise Transformers assumes the
// architecture's defaults. For exports only: it changes the tokenizer fingerprint.
void name_special_tokens(const Tokenizer& tokenizer, const std::filesystem::path& folder);

// True for file names that write_small_files may write.
[[nodiscard]] bool is_small_file(std::string_view name);
// True for tokenizer file names. Readers select among them.
[[nodiscard]] bool is_tokenizer_part(std::string_view name);

}  // namespace quench
