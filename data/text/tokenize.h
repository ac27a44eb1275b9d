#pragma once
// Document files to token shards.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"

namespace quench {

struct TokenizeProgress {
  std::uint64_t bytes = 0;  // input read
  std::uint64_t total_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

// Between batches; non-zero stops.
using StopPoll = std::function<int()>;

// The message states progress and the effect of repeating the call.
class TokenizationStopped : public std::runtime_error {
 public:
  TokenizationStopped(int reason, const std::string& message) : std::runtime_error(message), reason_(reason) {}
  [[nodiscard]] int reason() const noexcept { return reason_; }

 private:
  int reason_;
};

struct TokenizeOptions {
  std::vector<std::string> inputs;  // files or patterns
  ReaderOptions reader{};
  EncoderOptions encoder{};
  std::filesystem::path output;    // created atomically when complete
  bool overwrite = false;          // a folder of token shards only
  double validation_fraction = 0;  // in [0, 1)
  ValidationSplit validation_split = ValidationSplit::tail;
  // A document is never split across shards.
  std::uint64_t max_shard_tokens = 100'000'000;
  std::uint64_t batch_bytes = std::uint64_t{16} << 20;  // bytes of text; two batches are in memory
  std::function<void(const TokenizeProgress&)> progress{};
  StopPoll stop{};
  // Journals encoded batches in journal_of(output) and resumes from it: same result.
  bool journal = false;
};

struct TokenizedShard {
  std::string file;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
};

struct TokenizeResult {
  std::vector<TokenizedShard> train;       // train-00000.bin, ...
  std::vector<TokenizedShard> validation;  // none, or val.bin
  ReadReport report;
  std::vector<std::string> warnings;  // RecordNotes; also in dataset.json
};

// Shards (data/formats/shard_format.h), folder `tokenizer`, dataset.json (counts, tokenizer, inputs, options),
// independent of the number of threads. Throws the readers' errors; bad_config for invalid options, other files in the
// output folder, or an empty held-out split; invalid_argument without documents; TokenizationStopped. On error the
// output folder is unchanged.
TokenizeResult tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options);

// Next to the output folder.
[[nodiscard]] std::filesystem::path journal_of(const std::filesystem::path& output);

// For dataset.json and the cache key: options that affect the tokens of `inputs` (files, or "-").
[[nodiscard]] Json describe_options(const ReaderOptions& reader, const EncoderOptions& encoder,
                                    std::span<const std::filesystem::path> inputs);

}  // namespace quench
