#include "data/tokenizer/byte_tokenizer.h"

#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/tokenizer_json_writer.h"

namespace quench {

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  NewTokenizer tokenizer;
  for (int byte = 0; byte < 256; ++byte) tokenizer.tokens.emplace_back(1, static_cast<char>(byte));
  tokenizer.special_tokens = {"<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"};
  tokenizer.bos_token = tokenizer.special_tokens[0];
  tokenizer.eos_token = tokenizer.special_tokens[1];
  tokenizer.pad_token = tokenizer.special_tokens[2];
  return std::make_unique<JsonTokenizer>(write_tokenizer_json(tokenizer));
}

}  // namespace quench
