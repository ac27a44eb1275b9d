#include "data/sampling/packing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/ops/loss/cross_entropy.h"
#include "data/sampling/bin_packing.h"
#include "data/sampling/document_split.h"

namespace quench {
PackedRows::PackedRows(std::shared_ptr<const TokenSource> source, const PackingOptions& options)
    : source_(std::move(source)), options_(options) {
  QUENCH_CHECK(options.seq_len > 0, "rows of {} tokens", options.seq_len);
  QUENCH_CHECK(options.packing || !options.multipack, "multipack without packing");
  if (has_answers())
    index_answers();
  else if (cuts_stream())
    index_stream();
  else
    index_documents();
}

void PackedRows::index_stream() {
  const auto seq_len = static_cast<std::uint64_t>(options_.seq_len);
  const std::uint64_t tokens = source_->size();
  // One token more: the last label.
  const std::uint64_t full = tokens > 0 ? (tokens - 1) / seq_len : 0;
  const std::uint64_t rest = tokens - full * seq_len;  // with the token after the last full row
  row_count_ = full + ((!options_.drop_last || full == 0) && rest > 1 ? 1 : 0);
  if (row_count_ == full && rest > 0) losses_.tail_tokens = rest - 1;
  if (row_count_ > full) losses_.padding = seq_len - rest;
  QUENCH_CHECK(row_count_ > 0, "the data hold {} tokens, of which none follows another: add data\n  {}", tokens,
               source_->describe());
}

void PackedRows::index_documents() {
  for_each_document(*source_, [this](std::uint64_t begin, std::uint64_t length) { add_document(begin, length); });
  QUENCH_CHECK(!documents_.empty(),
               "no row: of the documents in {} tokens, {} have a single token, {} were dropped as longer than "
               "seq_len + 1 = {} and {} have no target among so many tokens\n  {}",
               source_->size(), losses_.single_token_documents, losses_.dropped_documents, options_.seq_len + 1,
               losses_.untrained_documents, source_->describe());
  if (options_.multipack && !has_prompts()) {
    pack_documents();
  } else {
    row_starts_.resize(documents_.size() + 1);
    std::iota(row_starts_.begin(), row_starts_.end(), std::uint64_t{0});
  }
  row_count_ = row_starts_.size() - 1;
  losses_.padding = row_count_ * static_cast<std::uint64_t>(options_.seq_len);
  for (const Span& span : documents_) losses_.padding -= inputs_of(span);
}

void PackedRows::pack_documents() {
  std::vector<std::uint64_t> sizes(documents_.size());
  std::ranges::transform(documents_, sizes.begin(), [&](const Span& span) { return inputs_of(span); });
  Bins bins = pack_bins(sizes, static_cast<std::uint64_t>(options_.seq_len));
  std::vector<Span> ordered(documents_.size());
  std::ranges::transform(bins.items, ordered.begin(), [&](std::uint64_t item) { return documents_[item]; });
  documents_ = std::move(ordered);
  row_starts_ = std::move(bins.starts);
}

std::size_t PackedRows::inputs_of(const Span& span) const noexcept {
  const auto length = static_cast<std::size_t>(span.total());
  return has_answers() ? length - 1 - static_cast<std::size_t>(span.shared)
                       : std::min(length, static_cast<std::size_t>(options_.seq_len));
}

void PackedRows::add_document(std::uint64_t begin, std::uint64_t length) {
  const auto seq_len = static_cast<std::uint64_t>(options_.seq_len);
  if (length < 2) {
    losses_.single_token_documents += length;
    return;
  }
  if (length <= (has_prompts() ? seq_len : seq_len + 1)) {
    documents_.push_back({begin, length});
    return;
  }
  switch (has_prompts() ? LongDocuments::drop : options_.long_documents) {
    case LongDocuments::split:
      for (std::uint64_t done = 0; done + 1 < length; done += seq_len)
        documents_.push_back({begin + done, std::min(seq_len + 1, length - done)});
      return;
    case LongDocuments::truncate: add_truncated(begin, length); return;
    case LongDocuments::drop:
      ++losses_.dropped_documents;
      losses_.dropped_tokens += length;
      return;
  }
}

void PackedRows::add_truncated(std::uint64_t begin, std::uint64_t length) {
  const auto seq_len = static_cast<std::uint64_t>(options_.seq_len);
  if (source_->has_target_mask()) {
    std::vector<std::uint8_t> targets(seq_len);
    source_->read_target_mask(begin + 1, targets);
    if (std::ranges::count(targets, 0) == options_.seq_len) {
      ++losses_.untrained_documents;
      return;
    }
  }
  documents_.push_back({begin, seq_len + 1});
  ++losses_.truncated_documents;
  losses_.truncated_tokens += length - seq_len - 1;
}

std::int64_t PackedRows::read(std::uint64_t row, const RowView& out, std::int64_t first_token,
                              std::vector<SequenceRange>& sequences, const PairList& pairs) const {
  QUENCH_CHECK(row < row_count_, "row {} of {}", row, row_count_);
  const auto seq_len = static_cast<std::size_t>(options_.seq_len);
  QUENCH_CHECK(out.input_ids.size() == seq_len && out.labels.size() == seq_len && out.positions.size() == seq_len,
               "row buffers of {}, {} and {} values for seq_len {}", out.input_ids.size(), out.labels.size(),
               out.positions.size(), seq_len);
  std::size_t used = 0;
  const auto add = [&](const Span& span) {
    write(span, used, out, first_token, sequences);
    used += inputs_of(span);
  };
  if (cuts_stream()) {
    const std::uint64_t begin = row * seq_len;
    add({begin, std::min<std::uint64_t>(seq_len + 1, source_->size() - begin)});
  } else {
    for (std::uint64_t i = row_starts_[row]; i < row_starts_[row + 1]; ++i) {
      const Span& span = documents_[i];
      if (pairs.pairs != nullptr && has_answers() && i % 2 == 0)
        pairs.pairs->push_back(
            {.item = pairs_[i / 2].item, .desirable = pairs_[i / 2].desirable, .sequence = sequences.size()});
      if (pairs.prefixes != nullptr && span.shared > 0)
        pairs.prefixes->push_back({.sequence = sequences.size(),
                                   .begin = sequences.back().q_begin,
                                   .length = static_cast<std::int64_t>(span.shared)});
      add(span);
    }
  }
  std::ranges::fill(out.input_ids.subspan(used), options_.pad_id);
  std::ranges::fill(out.labels.subspan(used), kIgnoreLabel);
  std::ranges::fill(out.positions.subspan(used), 0);
  return static_cast<std::int64_t>(seq_len) - std::count(out.labels.begin(), out.labels.end(), kIgnoreLabel);
}

void PackedRows::write(const Span& span, std::size_t at, const RowView& out, std::int64_t first_token,
                       std::vector<SequenceRange>& sequences) const {
  const auto length = static_cast<std::size_t>(span.total()), head = static_cast<std::size_t>(span.length);
  const std::size_t inputs = inputs_of(span), shared = static_cast<std::size_t>(span.shared);
  std::vector<std::int32_t> tokens(length);
  source_->read(span.begin, std::span(tokens).first(head));
  if (head < length) source_->read(span.tail_begin, std::span(tokens).subspan(head));
  const std::span<const std::int32_t> own = std::span(tokens).subspan(shared);
  std::copy_n(own.begin(), inputs, out.input_ids.subspan(at).begin());
  const std::span<std::int32_t> labels = out.labels.subspan(at, inputs);
  std::copy(own.begin() + 1, own.end(), labels.begin());
  std::ranges::fill(labels.subspan(own.size() - 1), kIgnoreLabel);

  // Document starts in the span, then the end of its inputs. A start at index `inputs` (the last label's token) only
  // masks that label.
  std::vector<std::uint64_t> borders;
  if (cuts_stream() && options_.document_mask) source_->find_document_starts(span.begin, tokens, borders);
  for (std::uint64_t& border : borders) {
    border -= span.begin;
    labels[static_cast<std::size_t>(border - 1)] = kIgnoreLabel;
  }
  if (borders.empty() || borders.back() != inputs) borders.push_back(inputs);
  std::size_t begin = 0;
  for (const std::uint64_t border : borders) {
    const auto count = static_cast<std::int64_t>(border - begin);
    const std::int64_t first = first_token + static_cast<std::int64_t>(at + begin);
    sequences.push_back({first, count, first, count});
    const std::span<std::int32_t> positions = out.positions.subspan(at + begin, border - begin);
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(shared));
    begin = border;
  }

  if (!source_->has_target_mask()) return;
  std::vector<std::uint8_t> targets(length - 1);
  source_->read_target_mask(span.begin + 1, std::span(targets).first(head - 1));
  if (head < length) source_->read_target_mask(span.tail_begin, std::span(targets).subspan(head - 1));
  for (std::size_t i = shared; i < targets.size(); ++i)
    if (targets[i] == 0) labels[i - shared] = kIgnoreLabel;
}

}  // namespace quench
