#pragma once
// Text that is trained on directly: tokenized once, kept in a cache folder.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/text/tokenize.h"

namespace quench {

struct TextCacheOptions {
  ReaderOptions reader{};
  EncoderOptions encoder{};
  std::filesystem::path folder;  // one folder of shards in it for each key; created if need be
  std::uint64_t batch_bytes = TokenizeOptions().batch_bytes;
  std::function<void(const TokenizeProgress&)> progress{};
  // Called when there is text to tokenize; what it gives is asked between batches, and destroyed when that is done.
  std::function<StopPoll()> watch_stop{};
};

// The shards of these files, in order. The cache key is a 128-bit hash of the files' bytes, the tokenizer's fingerprint
// and every option that decides tokens, so a change of any of them tokenizes again; file names and times do not matter.
// Processes that ask for the same key at once wait for the first (a file lock beside the folder). What a process that
// was stopped or killed has encoded is kept beside the folder (<key>.journal) and used by the next one with the same
// key; journals of other keys are left alone, as another run may go on with them. Throws TokenizationStopped.
[[nodiscard]] std::vector<std::filesystem::path> tokenize_cached(const std::vector<std::string>& inputs,
                                                                 const Tokenizer& tokenizer,
                                                                 const TextCacheOptions& options);

}  // namespace quench
