#pragma once
// Model folder files other than weights.

#include <filesystem>
#include <string_view>

#include "data/tokenizer/tokenizer.h"
#include "train/model_folder/token_ids.h"

namespace quench {

// Member of config.json and tokenizer_config.json: classes of code in the folder or on the Hub.
inline constexpr std::string_view kAutoMap = "auto_map";

// Paths may be empty.
struct SmallFiles {
  std::filesystem::path model;             // licences, generation_config.json
  std::filesystem::path tokenizer_folder;  // chat template and other tokenizer files
  const Tokenizer* tokenizer = nullptr;    // null: copies those of tokenizer_folder
  std::string chat_template;               // Jinja, instead of the tokenizer's; empty: none
  // For generation_config.json, other members from `model`; unset: of `model`, else of config.json.
  std::optional<TokenIds> generation_ids;
};

void write_small_files(const Json& config, const SmallFiles& files, const std::filesystem::path& to);

// For a tokenizer_config.json, if there is such a file. Drops auto_map: an export has no code, and readers have their
// own classes. Names the class PreTrainedTokenizerFast in place of TokenizersBackend, which Transformers 4 does not
// have. Unchanged otherwise.
void adapt_tokenizer_config(const std::filesystem::path& file);

// model_max_length of a tokenizer_config.json that is the length before the RoPE scaling of `config` (config.json)
// becomes max_position_embeddings: readers cap the context by it. Unchanged otherwise.
void extend_model_max_length(const Json& config, const std::filesystem::path& file);

// tokenizer_config.json with the special tokens for a lone tokenizer.json; Transformers would assume the architecture's
// defaults. For exports only: it changes the tokenizer fingerprint.
void name_special_tokens(const Tokenizer& tokenizer, const std::filesystem::path& folder);

// May be written by write_small_files.
[[nodiscard]] bool is_small_file(std::string_view name);
// Tokenizer file names, among which readers select.
[[nodiscard]] bool is_tokenizer_part(std::string_view name);

}  // namespace quench
