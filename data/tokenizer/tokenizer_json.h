#pragma once
// tokenizer.json (Hugging Face tokenizers).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/model/token_model.h"
#include "data/tokenizer/text/added_tokens.h"
#include "data/tokenizer/text/normalizer.h"
#include "data/tokenizer/text/pre_tokenizer.h"
#include "data/tokenizer/token_decoder.h"

namespace quench {

struct TokenizerDescription {
  std::unique_ptr<TokenModel> model;
  std::vector<std::string> tokens;       // by id, for the decoder; or empty
  std::vector<AddedToken> added_tokens;  // unique; ids agree with the vocabulary or follow it
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<std::int32_t> prefix, suffix;
};

// Validated: unique ids, the highest below twice the token count; merges join two vocabulary tokens into a third,
// without duplicates; added tokens have the ids of Hugging Face tokenizers. Truncation and padding are ignored, as by
// default in transformers. Throws corrupt or unsupported with `source`, line and component; unsupported components are
// never skipped.
[[nodiscard]] TokenizerDescription read_tokenizer_json(std::string_view text, std::string_view source);

}  // namespace quench
