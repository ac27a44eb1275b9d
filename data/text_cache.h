#pragma once
// Text that is trained on directly: tokenized once, kept in a cache folder.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenize.h"

namespace quench {

struct TextCacheOptions {
  ReaderOptions reader{};
  EncoderOptions encoder{};
  std::filesystem::path folder;  // one folder of shards in it for each key; created if need be
  std::function<void(const TokenizeProgress&)> progress{};
};

// The shards of these files, in order. The cache key is a 128-bit hash of the files' bytes, the tokenizer's fingerprint
// and every option that decides tokens, so a change of any of them tokenizes again; file names and times do not matter.
// Processes that ask for the same key at once wait for the first (a file lock beside the folder).
[[nodiscard]] std::vector<std::filesystem::path> tokenize_cached(const std::vector<std::string>& inputs,
                                                                 const Tokenizer& tokenizer,
                                                                 const TextCacheOptions& options);

}  // namespace quench
