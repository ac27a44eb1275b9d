#pragma once
// Token stream with document boundaries: a file, or a concatenation.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/token_format.h"

namespace quench {

class ValidationCache;

// Every read validates ids: negative ones and those >= the vocabulary size throw corrupt with file, token index and id.
// Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;  // tokens
  // "train.bin: llm.c, u16, 1,048,576 tokens".
  [[nodiscard]] virtual std::string describe() const = 0;
  // By its table of documents; 0: it has none.
  [[nodiscard]] virtual std::uint64_t document_count() const { return 0; }
  [[nodiscard]] virtual bool has_target_mask() const = 0;
  // Empty: unknown.
  [[nodiscard]] virtual std::string tokenizer_fingerprint() const = 0;

  virtual void read(std::uint64_t begin, std::span<std::int32_t> out) const = 0;
  // Per token: 1 loss target, 0 masked label.
  virtual void read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const = 0;
  // Appends document starts in (begin, begin + tokens.size()), increasing. `tokens`: result of read(begin, ...). Token
  // 0 always starts a document.
  virtual void find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                                    std::vector<std::uint64_t>& starts) const = 0;
};

struct TokenSourceOptions {
  const TokenFormat* format = nullptr;  // null: detect_token_format
  std::uint64_t vocab_size = 0;         // exclusive bound of ids; 0: the file's own, or 2^31
  // Last token of a document, without a document table. Without either, a file is one document.
  std::optional<std::int32_t> eos_id{};
  std::string tokenizer_fingerprint{};  // files of another tokenizer are rejected
  // Ids (and a Quench shard's hash) are validated at open, unless cached; errors of reading and verify_shard.
  ValidationCache* checks = nullptr;
};

// Megatron-LM: either file or the common prefix. Throws the header reader's errors; invalid_argument for another
// vocabulary or tokenizer than requested, or a headerless 16-bit file with a vocabulary above 65,536.
[[nodiscard]] std::unique_ptr<TokenSource> open_token_file(const std::filesystem::path& path,
                                                           const TokenSourceOptions& options = {});

}  // namespace quench
