#pragma once
// Reads the description of a tokenizer from a tokenizer.json (Hugging Face tokenizers).

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
  std::vector<std::string> tokens;       // of the model, by id, as the decoder reads them; empty: no token has this id
  std::vector<AddedToken> added_tokens;  // contents are unique; ids agree with the vocabulary or lie beyond it
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  // What the post-processor puts around one sequence.
  std::vector<std::int32_t> prefix, suffix;
};

// What is checked: every id is used once, and the highest is below twice the number of tokens; merges join tokens of
// the vocabulary into one, and none is repeated; added tokens have the ids that Hugging Face tokenizers would give
// them. Truncation and padding are ignored, as transformers does unless asked for them.
//
// Throws corrupt or unsupported naming `source`, the line and the component. A component that is not supported is
// never skipped.
[[nodiscard]] TokenizerDescription read_tokenizer_json(std::string_view text, std::string_view source);

}  // namespace quench
