#pragma once
// Files of documents to a folder of token shards: what `quench tokenize` runs, and what prepares text for training.

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
  std::uint64_t bytes = 0;  // of the input, read and encoded
  std::uint64_t total_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
};

// Asked between batches; anything but 0 ends the tokenization there.
using StopPoll = std::function<int()>;

// A tokenization that was asked to stop. The message says how far it is and what the same call does next.
class TokenizationStopped : public std::runtime_error {
 public:
  TokenizationStopped(int reason, const std::string& message) : std::runtime_error(message), reason_(reason) {}
  [[nodiscard]] int reason() const noexcept { return reason_; }  // what StopPoll gave

 private:
  int reason_;
};

struct TokenizeOptions {
  std::vector<std::string> inputs;  // files or patterns
  ReaderOptions reader{};
  EncoderOptions encoder{};
  std::filesystem::path output;    // folder; appears when it is complete
  bool overwrite = false;          // replace a folder that holds token shards and nothing else
  double validation_fraction = 0;  // in [0, 1)
  ValidationSplit validation_split = ValidationSplit::tail;
  // A shard takes no further document that would make it larger; one document is never divided over shards.
  std::uint64_t max_shard_tokens = 100'000'000;
  std::uint64_t batch_bytes = std::uint64_t{16} << 20;  // text encoded at once; twice as much is held
  std::function<void(const TokenizeProgress&)> progress{};
  StopPoll stop{};
  // Keep what is encoded in journal_of(output) until the folder is complete, and begin with what is kept there: the
  // result is the same, and a tokenization that ended early, however it ended, does not encode again.
  bool journal = false;
};

struct TokenizedShard {
  std::string file;  // name within the output folder
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
};

struct TokenizeResult {
  std::vector<TokenizedShard> train;       // train-00000.bin, ...
  std::vector<TokenizedShard> validation;  // none, or val.bin
  ReadReport report;
  std::vector<std::string> warnings;  // what RecordNotes says; also in dataset.json
};

// Writes shards (data/formats/shard_format.h), the tokenizer's files (folder `tokenizer`) and a summary (dataset.json:
// counts, tokenizer, inputs, options). The result does not depend on the number of threads. Throws what the readers
// throw; bad_config for options out of range, an output folder that holds other files, or a held-out part without
// documents; invalid_argument when no document is left; TokenizationStopped. After an error the output folder is as it
// was.
TokenizeResult tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options);

// "<output>.journal", beside the output folder (data/text/tokenize_checkpoint.h).
[[nodiscard]] std::filesystem::path journal_of(const std::filesystem::path& output);

// The options that decide the tokens, as stored in dataset.json and hashed by the text cache.
[[nodiscard]] Json describe_options(const ReaderOptions& reader, const EncoderOptions& encoder);

}  // namespace quench
