#pragma once
// Training rows of fixed length.
//
// Packing: row r is tokens r*seq_len .. r*seq_len + seq_len - 1, its last label the first token of row r + 1; a
// document is its own attention sequence: positions restart, no label crosses. Multipack: whole documents by bin
// packing, a function of the stream and seq_len. Without packing: a document per row. The latter two split, truncate or
// drop documents above seq_len + 1 tokens.
//
// labels[i] is the token after input i, or kIgnoreLabel (core/ops/cross_entropy.h). The last token of a document (EOS,
// if any) is a target but predicts nothing (multipack: no input): the first token of a document is never a target,
// except with document_mask off. Neither are padding and tokens with target flag 0.

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
  bool multipack = false;  // needs packing
  // Packing, no multipack; false: a row is one sequence, labels cross documents.
  bool document_mask = true;
  // Packing, no multipack; false: the rest forms a padded row.
  bool drop_last = true;
  LongDocuments long_documents = LongDocuments::split;  // multipack, or no packing
  std::int32_t pad_id = 0;
};

// seq_len values each.
struct RowView {
  std::span<std::int32_t> input_ids;
  std::span<std::int32_t> labels;
  std::span<std::int32_t> positions;  // within the sequence; padding: 0
};

class PackedRows {
 public:
  // Multipack and no packing: one pass finds the documents; 16 bytes per document, 8 per row. Throws invalid_argument,
  // with the arithmetic, without rows.
  PackedRows(std::shared_ptr<const TokenSource> source, const PackingOptions& options);

  [[nodiscard]] std::uint64_t size() const noexcept { return row_count_; }
  [[nodiscard]] std::int64_t seq_len() const noexcept { return options_.seq_len; }
  [[nodiscard]] const TokenSource& source() const noexcept { return *source_; }

  // Tokens that never become labels.
  struct Losses {
    std::uint64_t tail_tokens = 0;
    std::uint64_t truncated_documents = 0;
    std::uint64_t truncated_tokens = 0;
    std::uint64_t dropped_documents = 0;
    std::uint64_t dropped_tokens = 0;
    std::uint64_t untrained_documents = 0;     // by LongDocuments::truncate: no target remains
    std::uint64_t single_token_documents = 0;  // no label
    std::uint64_t padding = 0;
  };
  [[nodiscard]] const Losses& losses() const noexcept { return losses_; }

  // Appends the row's sequences, with indices from `first_token`, without padding. Returns the valid labels.
  // Thread-safe.
  std::int64_t read(std::uint64_t row, const RowView& out, std::int64_t first_token,
                    std::vector<SequenceRange>& sequences) const;

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  // inputs, and the last label's token if any
  };
  [[nodiscard]] bool cuts_stream() const noexcept { return options_.packing && !options_.multipack; }
  void index_stream();
  void index_documents();
  void add_document(std::uint64_t begin, std::uint64_t length);
  void add_truncated(std::uint64_t begin, std::uint64_t length);
  void pack_documents();
  // Multipack: those with a label, length - 1; else min(length, seq_len).
  [[nodiscard]] std::size_t inputs_of(const Span& span) const noexcept;
  void write(const Span& span, std::size_t at, const RowView& out, std::int64_t first_token,
             std::vector<SequenceRange>& sequences) const;

  std::shared_ptr<const TokenSource> source_;
  PackingOptions options_;
  std::uint64_t row_count_ = 0;
  // Row r is documents_[row_starts_[r]] .. documents_[row_starts_[r + 1] - 1].
  std::vector<Span> documents_;
  std::vector<std::uint64_t> row_starts_;
  Losses losses_;
};

}  // namespace quench
