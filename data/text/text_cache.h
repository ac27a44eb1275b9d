#pragma once
// Cache of tokenized training text.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/text/tokenize.h"

namespace quench {

struct TextCacheOptions {
  ReaderOptions reader{};
  EncoderOptions encoder{};
  std::filesystem::path folder;  // a subfolder of shards per key; created if missing
  std::uint64_t batch_bytes = TokenizeOptions().batch_bytes;
  std::function<void(const TokenizeProgress&)> progress{};
  // Before tokenizing; the result is polled between batches, destroyed at the end.
  std::function<StopPoll()> watch_stop{};
};

// In order. Key: 128-bit hash of contents, tokenizer fingerprint and every option that affects tokens, without names
// and times. Processes with the same key wait on a file lock. Interrupted progress stays in <key>.journal. Throws
// TokenizationStopped.
[[nodiscard]] std::vector<std::filesystem::path> tokenize_cached(const std::vector<std::string>& inputs,
                                                                 const Tokenizer& tokenizer,
                                                                 const TextCacheOptions& options);

}  // namespace quench
