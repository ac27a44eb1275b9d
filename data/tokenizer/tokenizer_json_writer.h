#pragma once
// Byte-level BPE for Hugging Face tokenizers and transformers.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer_files.h"

namespace quench {

struct NewTokenizer {
  std::vector<std::string> tokens;  // bytes, by id
  std::vector<std::string> special_tokens;
  std::vector<std::pair<std::string, std::string>> merges;  // bytes, by rank
  std::string_view split_expression;                        // empty: no pre-tokenization
  // Or empty. BOS is prepended to every sequence.
  std::string bos_token, eos_token, pad_token;
};

[[nodiscard]] TokenizerFiles write_tokenizer_json(const NewTokenizer& tokenizer);

}  // namespace quench
