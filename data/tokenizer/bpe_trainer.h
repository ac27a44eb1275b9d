#pragma once
// Training of byte-level BPE.
//
// From 256 bytes, merges the most frequent adjacent pair within pieces; ties by smaller left id, then right. A function
// of piece counts only, independent of document order and threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace quench {

// Vocabulary and rules of train_bpe().
struct BpeTrainingOptions {
  // With 256 bytes (ids 0 to 255) and special tokens (highest ids). Fewer, with a warning, if too few pairs reach
  // min_frequency.
  std::int64_t vocab_size = 0;
  std::string split_pattern = "llama3";  // name of a SplitPattern; empty: no pre-tokenization
  std::int64_t min_frequency = 2;
  // Or empty. bos_token is prepended to every text.
  std::string bos_token = "<|begin_of_text|>", eos_token = "<|end_of_text|>", pad_token = "<|pad|>";
  std::vector<std::string> special_tokens;
};

// Assigns the next document; false at the end.
using DocumentSource = std::function<bool(std::string& document)>;

// Special token texts are plain. Throws invalid_argument for invalid options.
[[nodiscard]] std::unique_ptr<Tokenizer> train_bpe(const DocumentSource& documents, const BpeTrainingOptions& options);
[[nodiscard]] std::unique_ptr<Tokenizer> train_bpe(std::span<const std::string_view> documents,
                                                   const BpeTrainingOptions& options);

}  // namespace quench
