#pragma once
// Documents to token ids, in parallel.

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
  bool add_special_tokens = true;  // what the tokenizer puts before and after one sequence, such as BOS
};

struct EncodedDocument {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;  // one flag an id, or empty: all may be targets
};

class DocumentEncoder {
 public:
  // Keeps a reference to the tokenizer. Throws bad_config when an EOS is asked for and the tokenizer has none.
  DocumentEncoder(const Tokenizer& tokenizer, const EncoderOptions& options);

  // One result a document, in order; independent of the number of threads. A document that `begins` gets what the
  // tokenizer puts first, one that `ends` what it puts last and the EOS, unless it is `complete` or its text begins or
  // ends with these tokens. White space after an EOS in the text is not looked at. Throws bad_config for a special
  // token that the tokenizer does not have.
  [[nodiscard]] std::vector<EncodedDocument> encode(std::span<const Document> documents) const;

  [[nodiscard]] std::optional<std::int32_t> eos_id() const noexcept { return eos_; }

 private:
  void append_piece(const DocumentPiece& piece, std::vector<std::int32_t>&& encoded, bool keep_targets,
                    EncodedDocument& out) const;

  // Whether the document has what stands at its end already.
  [[nodiscard]] bool has_end(std::span<const std::int32_t> ids) const;

  // One flag an id of the piece's text.
  [[nodiscard]] std::vector<std::uint8_t> flags_of(const DocumentPiece& piece, std::span<const std::int32_t> ids) const;

  const Tokenizer& tokenizer_;
  EncoderOptions options_;
  std::optional<std::int32_t> eos_;  // appended to each document
  std::vector<std::int32_t> prefix_, suffix_;
};

// The tokenizer's fingerprint as shards and sidecars store it: 16 hexadecimal digits.
[[nodiscard]] std::string fingerprint_text(const Tokenizer& tokenizer);

}  // namespace quench
