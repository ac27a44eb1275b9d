#pragma once
// The small files of a model folder: all but the weights.

#include <filesystem>

#include "data/tokenizer/tokenizer.h"
#include "train/model_folder/token_ids.h"

namespace quench {

// Where they come from. Folders may be empty paths.
struct SmallFiles {
  std::filesystem::path model;             // has the licences and a generation_config.json
  std::filesystem::path tokenizer_folder;  // has the chat template and other forms of the tokenizer's vocabulary
  const Tokenizer* tokenizer = nullptr;    // writes its own files; null: those of tokenizer_folder are copied
  std::string chat_template;               // Jinja; takes the place of the tokenizer's own; empty: that
  // Of generation_config.json, whose other members are the model's; unset: those of `model`, else of config.json.
  std::optional<TokenIds> generation_ids;
};

// Writes config.json and the small files into the folder `to`.
void write_small_files(const Json& config, const SmallFiles& files, const std::filesystem::path& to);

// Gives a tokenizer.json that has no tokenizer_config.json one that names its special tokens: without it Transformers
// takes those of the architecture's usual tokenizer. Only for others: it counts in the tokenizer's fingerprint.
void name_special_tokens(const Tokenizer& tokenizer, const std::filesystem::path& folder);

// Whether write_small_files may write a file of this name.
[[nodiscard]] bool is_small_file(std::string_view name);
// Whether that is one of the files that make up a tokenizer. Readers choose among them.
[[nodiscard]] bool is_tokenizer_part(std::string_view name);

}  // namespace quench
