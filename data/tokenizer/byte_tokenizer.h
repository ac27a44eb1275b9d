#pragma once
// The tokenizer without a vocabulary file: byte i is id i, 256 <|begin_of_text|>, 257 <|end_of_text|>, 258 <|pad|>.

#include <memory>

#include "data/tokenizer/tokenizer.h"

namespace quench {

// A byte-level BPE tokenizer without merges; saved, it is a tokenizer.json that Hugging Face tokenizers reads.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace quench
