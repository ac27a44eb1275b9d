#pragma once
// Tokenization of document files to a folder of token shards.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"

namespace quench {

struct TokenizeProgress {
  std::uint64_t bytes = 0;  // input bytes
  std::uint64_t total_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

// Polled between batches; non-zero stops the tokenization.
using StopPoll = std::function<int()>;

// Stop requested by StopPoll. The message states the progress and the effect of repeating the call.
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
  std::filesystem::path output;    // folder; created atomically when complete
  bool overwrite = false;          // replace a folder that holds only token shards
  double validation_fraction = 0;  // in [0, 1)
  ValidationSplit validation_split = ValidationSplit::tail;
  // Shard size limit; a document is never split across shards.
  std::uint64_t max_shard_tokens = 100'000'000;
  std::uint64_t batch_bytes = std::uint64_t{16} << 20;  // text per batch; two batches are in memory
  std::function<void(const TokenizeProgress&)> progress{};
  StopPoll stop{};
  // Journal the encoded batches in journal_of(output) and resume from it: same result, without encoding again after an
  // interruption.
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
  std::vector<std::string> warnings;  // of RecordNotes; also in dataset.json
};

// Writes shards (data/formats/shard_format.h), tokenizer files (folder `tokenizer`) and dataset.json (counts,
// tokenizer, inputs, options). Independent of the number of threads. Throws the readers' errors; bad_config for invalid
// options, other files in the output folder, or an empty held-out split; invalid_argument if no document remains;
// TokenizationStopped. On error the output folder is unchanged.
TokenizeResult tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options);

// Next to the output folder (data/text/tokenize_checkpoint.h).
[[nodiscard]] std::filesystem::path journal_of(const std::filesystem::path& output);

// Options that affect tokens, for dataset.json and the text cache key.
[[nodiscard]] Json describe_options(const ReaderOptions& reader, const EncoderOptions& encoder);

}  // namespace quench
