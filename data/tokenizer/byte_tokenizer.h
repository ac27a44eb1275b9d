#pragma once
// Byte i is id i, 256 <|begin_of_text|>, 257 <|end_of_text|>, 258 <|pad|>.

#include <memory>

#include "data/tokenizer/tokenizer.h"

namespace quench {

// Byte-level BPE without merges; saved as tokenizer.json.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace quench
