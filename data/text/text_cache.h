#pragma once
// Cache of tokenized text for training on text files.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/text/tokenize.h"

namespace quench {

struct TextCacheOptions {
  ReaderOptions reader{};
  EncoderOptions encoder{};
  std::filesystem::path folder;  // one subfolder of shards per key; created if missing
  std::uint64_t batch_bytes = TokenizeOptions().batch_bytes;
  std::function<void(const TokenizeProgress&)> progress{};
  // Called before tokenizing; the result is polled between batches and destroyed at the end.
  std::function<StopPoll()> watch_stop{};
};

// Shards of these files, in order. Cache key: 128-bit hash of file contents, tokenizer fingerprint and every option
// that affects tokens, without file names and times. Concurrent processes with the same key wait on a file lock.
// Interrupted progress is kept in <key>.journal for the same key. Throws TokenizationStopped.
[[nodiscard]] std::vector<std::filesystem::path> tokenize_cached(const std::vector<std::string>& inputs,
                                                                 const Tokenizer& tokenizer,
                                                                 const TextCacheOptions& options);

}  // namespace quench
