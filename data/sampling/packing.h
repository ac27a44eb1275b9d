#pragma once
// Training rows of a fixed length from a token stream.
//
// With packing, the stream is cut every seq_len tokens: row r holds tokens r*seq_len .. r*seq_len + seq_len - 1 and its
// last label is the first token of the next row. Documents are attention sequences of their own within the row: they do
// not see each other, positions restart, and no label crosses a border. With multipack, a row holds whole documents,
// chosen by their lengths so that little padding is left (data/sampling/bin_packing.h); which ones depends on the
// stream and seq_len alone. Without packing, a row holds one document. Documents of more than seq_len + 1 tokens are
// split, truncated or dropped where they are not cut by the stream's rows.
//
// What is trained: labels[i] is the token after input i, or kIgnoreLabel (core/ops/cross_entropy.h). A document's last
// token, its EOS where it has one, is a target: it is predicted from the token before it. Nothing is predicted from a
// document's last token (with multipack it is no input either), so the first token of a document is never a target,
// except with document_mask off. Tokens whose target flag is 0 and padding are never targets.

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
  bool multipack = false;  // packing only; rows are filled with whole documents
  // Packing without multipack; false: a row is one sequence and labels cross document borders.
  bool document_mask = true;
  // Packing without multipack; false: the tokens after the last full row make one more, padded row.
  bool drop_last = true;
  LongDocuments long_documents = LongDocuments::split;  // with multipack, or without packing
  std::int32_t pad_id = 0;
};

// Where a row is written: seq_len values each.
struct RowView {
  std::span<std::int32_t> input_ids;
  std::span<std::int32_t> labels;
  std::span<std::int32_t> positions;  // index within the sequence; 0 in padding
};

class PackedRows {
 public:
  // With multipack or without packing the stream is read once to find its documents; memory is 16 bytes a document and
  // 8 a row. Throws invalid_argument, with the arithmetic, when the stream gives no row.
  PackedRows(std::shared_ptr<const TokenSource> source, const PackingOptions& options);

  [[nodiscard]] std::uint64_t size() const noexcept { return row_count_; }  // rows
  [[nodiscard]] std::int64_t seq_len() const noexcept { return options_.seq_len; }
  [[nodiscard]] const TokenSource& source() const noexcept { return *source_; }

  // What does not become a label although its document is in the data: reported in the data plan.
  struct Losses {
    std::uint64_t tail_tokens = 0;          // after the last full row
    std::uint64_t truncated_documents = 0;  // cut by LongDocuments::truncate
    std::uint64_t truncated_tokens = 0;
    std::uint64_t dropped_documents = 0;  // left out by LongDocuments::drop
    std::uint64_t dropped_tokens = 0;
    std::uint64_t untrained_documents = 0;     // left out by LongDocuments::truncate: it cuts all of their targets
    std::uint64_t single_token_documents = 0;  // nothing to predict
    std::uint64_t padding = 0;                 // inputs of all rows that hold no token
  };
  [[nodiscard]] const Losses& losses() const noexcept { return losses_; }

  // Writes row `row` and appends its sequences, whose indices start at `first_token`; padding is in no sequence.
  // Returns the number of labels that count. Thread-safe.
  std::int64_t read(std::uint64_t row, const RowView& out, std::int64_t first_token,
                    std::vector<SequenceRange>& sequences) const;

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  // inputs, plus the last label's token where there is one
  };
  [[nodiscard]] bool cuts_stream() const noexcept { return options_.packing && !options_.multipack; }
  void index_stream();
  void index_documents();
  void add_document(std::uint64_t begin, std::uint64_t length);
  void add_truncated(std::uint64_t begin, std::uint64_t length);
  void pack_documents();
  // Inputs of a span. With multipack those that predict something; else a row of its own has room for the last token.
  [[nodiscard]] std::size_t inputs_of(const Span& span) const noexcept;
  // Writes the inputs of a span from index `at` of the row on.
  void write(const Span& span, std::size_t at, const RowView& out, std::int64_t first_token,
             std::vector<SequenceRange>& sequences) const;

  std::shared_ptr<const TokenSource> source_;
  PackingOptions options_;
  std::uint64_t row_count_ = 0;
  // Of rows of documents: row r holds documents_[row_starts_[r]] .. documents_[row_starts_[r + 1] - 1].
  std::vector<Span> documents_;
  std::vector<std::uint64_t> row_starts_;
  Losses losses_;
};

}  // namespace quench
