#pragma once
// Random access to a stream of token ids with its documents: one file of any known format, or several in a row.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/token_format.h"

namespace quench {

class ValidationCache;

// Token ids are checked as they are read: an id that is negative or not below the vocabulary size is an error (corrupt)
// that names the file, the token's index and the id. All members are safe to call from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;  // tokens
  // For the data plan: "train.bin: llm.c, u16, 1,048,576 tokens".
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] virtual bool has_target_mask() const = 0;
  // Fingerprint of the tokenizer that made the tokens; empty when unknown.
  [[nodiscard]] virtual std::string tokenizer_fingerprint() const = 0;

  // Tokens begin .. begin + out.size() - 1.
  virtual void read(std::uint64_t begin, std::span<std::int32_t> out) const = 0;
  // One flag a token: 1 if the token may be predicted (a target), 0 if its label is to be masked.
  virtual void read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const = 0;
  // Appends, in increasing order, the index of each token after `begin` and before begin + tokens.size() that is the
  // first of its document. `tokens` are those that read(begin, ...) gave. Token 0 always starts a document.
  virtual void find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                                    std::vector<std::uint64_t>& starts) const = 0;
};

struct TokenSourceOptions {
  const TokenFormat* format = nullptr;  // null: the one that recognises the file (detect_token_format)
  std::uint64_t vocab_size = 0;         // ids must be below it; 0: only what the file itself says, and 2^31
  // Marks the last token of each document in files that keep no document table. Without either, a file is one document.
  std::optional<std::int32_t> eos_id{};
  std::string tokenizer_fingerprint{};  // when set, a file made with another tokenizer is refused
  // When set, all ids, and the hash of a Quench shard, are checked when the file is opened, unless it knows them. The
  // errors are those of reading and of verify_shard (data/formats/shard_format.h).
  ValidationCache* checks = nullptr;
};

// Opens one file; for Megatron-LM either file or their common prefix. Throws what the format's header reader throws,
// and invalid_argument when the file's vocabulary or tokenizer is not the one asked for, or when a headerless 16-bit
// file is opened for a vocabulary above 65,536.
[[nodiscard]] std::unique_ptr<TokenSource> open_token_file(const std::filesystem::path& path,
                                                           const TokenSourceOptions& options = {});

}  // namespace quench
