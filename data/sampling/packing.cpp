#include "data/sampling/packing.h"

#include <algorithm>

#include "core/ops/cross_entropy.h"

namespace quench {

PackedRows::PackedRows(std::shared_ptr<const TokenSource> source, const PackingOptions& options)
    : source_(std::move(source)), options_(options) {
  QUENCH_CHECK(options.seq_len > 0, "rows of {} tokens", options.seq_len);
  const auto seq_len = static_cast<std::uint64_t>(options.seq_len);
  const std::uint64_t tokens = source_->size();
  if (!options.packing) {
    index_documents();
    row_count_ = rows_.size();
    QUENCH_CHECK(row_count_ > 0,
                 "no row: of the documents in {} tokens, {} have a single token and {} were dropped as longer than "
                 "seq_len + 1 = {}\n  {}",
                 tokens, losses_.single_token_documents, losses_.dropped_documents, seq_len + 1, source_->describe());
    return;
  }
  // A row needs one token more than it has inputs: the last label.
  const std::uint64_t full = tokens > 0 ? (tokens - 1) / seq_len : 0;
  const std::uint64_t rest = tokens - full * seq_len;  // includes the token after the last full row
  row_count_ = full + (!options.drop_last && rest > 1 ? 1 : 0);
  if (row_count_ == full && rest > 0) losses_.tail_tokens = rest - 1;
  QUENCH_CHECK(row_count_ > 0, "no row: {} tokens are fewer than seq_len + 1 = {}\n  {}", tokens, seq_len + 1,
               source_->describe());
}

void PackedRows::index_documents() {
  constexpr std::uint64_t kBlock = 1 << 16;
  const std::uint64_t total = source_->size();
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> starts;
  std::uint64_t document = 0;
  // Blocks share a token, because a block's own first token is never reported.
  for (std::uint64_t begin = 0; begin < total; begin += kBlock) {
    tokens.resize(static_cast<std::size_t>(std::min(kBlock + 1, total - begin)));
    source_->read(begin, tokens);
    starts.clear();
    source_->find_document_starts(begin, tokens, starts);
    for (const std::uint64_t start : starts) {
      add_document(document, start - document);
      document = start;
    }
  }
  add_document(document, total - document);
}

void PackedRows::add_document(std::uint64_t begin, std::uint64_t length) {
  const auto seq_len = static_cast<std::uint64_t>(options_.seq_len);
  if (length < 2) {
    losses_.single_token_documents += length;
    return;
  }
  if (length <= seq_len + 1) {
    rows_.push_back({begin, length});
    return;
  }
  switch (options_.long_documents) {
    case LongDocuments::split:
      for (std::uint64_t done = 0; done + 1 < length; done += seq_len)
        rows_.push_back({begin + done, std::min(seq_len + 1, length - done)});
      return;
    case LongDocuments::truncate:
      rows_.push_back({begin, seq_len + 1});
      ++losses_.truncated_documents;
      losses_.truncated_tokens += length - seq_len - 1;
      return;
    case LongDocuments::drop:
      ++losses_.dropped_documents;
      losses_.dropped_tokens += length;
      return;
  }
}

std::int64_t PackedRows::read(std::uint64_t row, const RowView& out, std::int64_t first_token,
                              std::vector<SequenceRange>& sequences) const {
  QUENCH_CHECK(row < row_count_, "row {} of {}", row, row_count_);
  const auto seq_len = static_cast<std::size_t>(options_.seq_len);
  QUENCH_CHECK(out.input_ids.size() == seq_len && out.labels.size() == seq_len && out.positions.size() == seq_len,
               "row buffers of {}, {} and {} values for seq_len {}", out.input_ids.size(), out.labels.size(),
               out.positions.size(), seq_len);
  Span span;
  if (options_.packing) {
    span.begin = row * seq_len;
    span.length = std::min<std::uint64_t>(seq_len + 1, source_->size() - span.begin);
  } else {
    span = rows_[static_cast<std::size_t>(row)];
  }
  const auto length = static_cast<std::size_t>(span.length);
  const std::size_t inputs = std::min(length, seq_len);

  std::vector<std::int32_t> tokens(length);
  source_->read(span.begin, tokens);
  std::copy_n(tokens.begin(), inputs, out.input_ids.begin());
  std::fill(out.input_ids.begin() + static_cast<std::ptrdiff_t>(inputs), out.input_ids.end(), options_.pad_id);
  std::fill(out.positions.begin() + static_cast<std::ptrdiff_t>(inputs), out.positions.end(), 0);
  std::copy(tokens.begin() + 1, tokens.end(), out.labels.begin());
  std::fill(out.labels.begin() + static_cast<std::ptrdiff_t>(length - 1), out.labels.end(), kIgnoreLabel);

  // Borders of the sequences: document starts within the row, with the row's end last. A start at index `inputs` (the
  // token of the last label) closes no sequence but masks that label.
  std::vector<std::uint64_t> borders;
  if (options_.packing && options_.document_mask) source_->find_document_starts(span.begin, tokens, borders);
  for (std::uint64_t& border : borders) {
    border -= span.begin;
    out.labels[static_cast<std::size_t>(border - 1)] = kIgnoreLabel;
  }
  if (borders.empty() || borders.back() != inputs) borders.push_back(inputs);
  std::int64_t begin = 0;
  for (const std::uint64_t border : borders) {
    const std::int64_t count = static_cast<std::int64_t>(border) - begin;
    sequences.push_back({first_token + begin, count, first_token + begin, count});
    for (std::int64_t i = 0; i < count; ++i)
      out.positions[static_cast<std::size_t>(begin + i)] = static_cast<std::int32_t>(i);
    begin += count;
  }

  if (source_->has_target_mask()) {
    std::vector<std::uint8_t> targets(length - 1);
    source_->read_target_mask(span.begin + 1, targets);
    for (std::size_t i = 0; i < targets.size(); ++i)
      if (targets[i] == 0) out.labels[i] = kIgnoreLabel;
  }
  return static_cast<std::int64_t>(seq_len) - std::count(out.labels.begin(), out.labels.end(), kIgnoreLabel);
}

}  // namespace quench
