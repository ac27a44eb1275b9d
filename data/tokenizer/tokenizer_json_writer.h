#pragma once
// Writes byte-level BPE tokenizers that Hugging Face tokenizers and transformers load.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer_files.h"

namespace quench {

struct NewTokenizer {
  std::vector<std::string> tokens;                          // bytes, by id
  std::vector<std::string> special_tokens;                  // their ids follow
  std::vector<std::pair<std::string, std::string>> merges;  // bytes, in order of rank
  std::string_view split_expression;                        // empty: text is not split
  // Contents of special tokens; empty: none. Encoding puts the first before every sequence.
  std::string bos_token, eos_token, pad_token;
};

// tokenizer.json and tokenizer_config.json.
[[nodiscard]] TokenizerFiles write_tokenizer_json(const NewTokenizer& tokenizer);

}  // namespace quench
