#pragma once
// Trains byte-level BPE tokenizers.
//
// Starting from the 256 bytes, the most frequent pair of neighbouring tokens within the pieces of the text becomes a
// token, again and again; of equally frequent pairs the one with the smaller left id, then right id. The result depends
// on how often each piece occurs and on nothing else: neither on the order of documents nor on the number of threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace quench {

struct BpeTrainingOptions {
  // How many ids the tokenizer has, the 256 bytes (ids 0 to 255) and the special tokens (the highest ids) included. A
  // text in which too few pairs occur min_frequency times yields fewer, with a warning.
  std::int64_t vocab_size = 0;
  std::string split_pattern = "llama3";  // a name that SplitPattern knows; empty: text is not split
  std::int64_t min_frequency = 2;        // of a pair that becomes a token
  // Empty: none. Encoding puts bos_token before every text.
  std::string bos_token = "<|begin_of_text|>", eos_token = "<|end_of_text|>", pad_token = "<|pad|>";
  std::vector<std::string> special_tokens;  // further ones
};

// Puts the next document into its argument; false when there is none left.
using DocumentSource = std::function<bool(std::string& document)>;

// Special tokens that occur in documents are text like any other. Throws invalid_argument for options that cannot be.
[[nodiscard]] std::unique_ptr<Tokenizer> train_bpe(const DocumentSource& documents, const BpeTrainingOptions& options);
[[nodiscard]] std::unique_ptr<Tokenizer> train_bpe(std::span<const std::string_view> documents,
                                                   const BpeTrainingOptions& options);

}  // namespace quench
