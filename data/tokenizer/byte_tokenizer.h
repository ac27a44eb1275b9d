#pragma once
// Tokenizer without a vocabulary file: byte i is id i, 256 <|begin_of_text|>, 257 <|end_of_text|>, 258 <|pad|>.

#include <memory>

#include "data/tokenizer/tokenizer.h"

namespace quench {

// Byte-level BPE tokenizer without merges; saved as a tokenizer.json for Hugging Face tokenizers.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace quench
