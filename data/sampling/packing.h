#pragma once
// Training rows of fixed length from a token stream.
//
// Packing: row r is tokens r*seq_len .. r*seq_len + seq_len - 1, its last label the first token of row r + 1. Each
// document is its own attention sequence: positions restart, no label crosses a boundary. Multipack: rows of whole
// documents by bin packing (data/sampling/bin_packing.h), a function of the stream and seq_len only. Without packing:
// one document per row. The latter two split, truncate or drop documents above seq_len + 1 tokens.
//
// Targets: labels[i] is the token after input i, or kIgnoreLabel (core/ops/cross_entropy.h). The last token of a
// document (EOS, if any) is a target but predicts nothing (with multipack it is no input), so the first token of a
// document is never a target, except with document_mask off. Padding and tokens with target flag 0 are never targets.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ops/attention.h"
#include "data/formats/token_source.h"
#include "data/sampling/long_documents.h"

namespace quench {

struct PackingOptions {
  std::int64_t seq_len = 0;
  bool packing = true;
  bool multipack = false;  // packing only; rows of whole documents
  // Packing without multipack; false: a row is one sequence, and labels cross document boundaries.
  bool document_mask = true;
  // Packing without multipack; false: the remaining tokens form one more, padded row.
  bool drop_last = true;
  LongDocuments long_documents = LongDocuments::split;  // with multipack, or without packing
  std::int32_t pad_id = 0;
};

// Destination of a row: seq_len values each.
struct RowView {
  std::span<std::int32_t> input_ids;
  std::span<std::int32_t> labels;
  std::span<std::int32_t> positions;  // index within the sequence; 0 in padding
};

class PackedRows {
 public:
  // Multipack and no packing: one pass over the stream finds the documents; 16 bytes per document and 8 per row. Throws
  // invalid_argument, with the arithmetic, if no row results.
  PackedRows(std::shared_ptr<const TokenSource> source, const PackingOptions& options);

  [[nodiscard]] std::uint64_t size() const noexcept { return row_count_; }
  [[nodiscard]] std::int64_t seq_len() const noexcept { return options_.seq_len; }
  [[nodiscard]] const TokenSource& source() const noexcept { return *source_; }

  // Tokens of the data that never become labels, for the data plan.
  struct Losses {
    std::uint64_t tail_tokens = 0;
    std::uint64_t truncated_documents = 0;
    std::uint64_t truncated_tokens = 0;
    std::uint64_t dropped_documents = 0;
    std::uint64_t dropped_tokens = 0;
    std::uint64_t untrained_documents = 0;     // dropped by LongDocuments::truncate: no target remains
    std::uint64_t single_token_documents = 0;  // no label possible
    std::uint64_t padding = 0;
  };
  [[nodiscard]] const Losses& losses() const noexcept { return losses_; }

  // Writes row `row` and appends its sequences, with indices from `first_token`; padding is in none. Returns the number
  // of valid labels. Thread-safe.
  std::int64_t read(std::uint64_t row, const RowView& out, std::int64_t first_token,
                    std::vector<SequenceRange>& sequences) const;

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  // inputs, plus the last label's token if any
  };
  [[nodiscard]] bool cuts_stream() const noexcept { return options_.packing && !options_.multipack; }
  void index_stream();
  void index_documents();
  void add_document(std::uint64_t begin, std::uint64_t length);
  void add_truncated(std::uint64_t begin, std::uint64_t length);
  void pack_documents();
  // Inputs of a span. Multipack: those with a label, length - 1; otherwise min(length, seq_len).
  [[nodiscard]] std::size_t inputs_of(const Span& span) const noexcept;
  void write(const Span& span, std::size_t at, const RowView& out, std::int64_t first_token,
             std::vector<SequenceRange>& sequences) const;

  std::shared_ptr<const TokenSource> source_;
  PackingOptions options_;
  std::uint64_t row_count_ = 0;
  // For rows of documents: row r is documents_[row_starts_[r]] .. documents_[row_starts_[r + 1] - 1].
  std::vector<Span> documents_;
  std::vector<std::uint64_t> row_starts_;
  Losses losses_;
};

}  // namespace quench
