#pragma once
// Parallel encoding of documents to token ids.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/text/document.h"
#include "data/text/policies.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

struct EncoderOptions {
  EosPolicy eos = EosPolicy::automatic;
  bool add_special_tokens = true;  // tokens of the tokenizer's post-processor, such as BOS
};

struct EncodedDocument {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;  // one flag per id, or empty: all may be targets
};

class DocumentEncoder {
 public:
  // Keeps a reference to the tokenizer. Throws bad_config for an EOS policy without an EOS token.
  DocumentEncoder(const Tokenizer& tokenizer, const EncoderOptions& options);

  // One result per document, in order, independent of the number of threads. A document with `begins` gets the prefix
  // tokens, one with `ends` the suffix and EOS, unless `complete` or already present in the text. White space after an
  // EOS is ignored. Throws bad_config for unknown special tokens.
  [[nodiscard]] std::vector<EncodedDocument> encode(std::span<const Document> documents) const;

  [[nodiscard]] std::optional<std::int32_t> eos_id() const noexcept { return eos_; }

 private:
  void append_piece(const DocumentPiece& piece, std::vector<std::int32_t>&& encoded, bool keep_targets,
                    EncodedDocument& out) const;

  // Prefix, suffix and EOS.
  void add_frame(const Document& document, bool keep_targets, EncodedDocument& out) const;
  [[nodiscard]] bool has_end(std::span<const std::int32_t> ids) const;

  [[nodiscard]] std::vector<std::uint8_t> flags_of(const DocumentPiece& piece, std::span<const std::int32_t> ids) const;

  const Tokenizer& tokenizer_;
  EncoderOptions options_;
  std::optional<std::int32_t> eos_;  // appended to each document
  std::vector<std::int32_t> prefix_, suffix_;
};

// Tokenizer fingerprint as stored in shards and sidecars: 16 hex digits.
[[nodiscard]] std::string fingerprint_text(const Tokenizer& tokenizer);

}  // namespace quench
