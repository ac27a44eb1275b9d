#include "data/sampling/batch_part.h"

#include <algorithm>

#include "core/ops/loss/cross_entropy.h"
#include "data/sampling/loader.h"

namespace quench {
namespace {

// Chunks of the rows of a batch in parts.
struct Chunks {
  std::int64_t rows, length, parts, size;

  Chunks(const Batch& whole, const SequencePart& part)
      : rows(whole.input_ids.size(0)),
        length(whole.input_ids.size(1)),
        parts(part.count),
        size(length / part_chunks(part.count)) {
    QUENCH_CHECK(part.index >= 0 && part.index < part.count && length % part_chunks(part.count) == 0,
                 "part {} of {}: rows of {} tokens are not a multiple of {}", part.index, part.count, length,
                 part_chunks(part.count));
  }

  // Tokens of a part in a row, and in the batch.
  [[nodiscard]] std::int64_t part_length() const { return 2 * size; }
  [[nodiscard]] std::int64_t part_tokens() const { return rows * part_length(); }
  // Row of all parts, in the order of their indices.
  [[nodiscard]] std::int64_t row_of(std::int64_t token) const {
    const std::int64_t row = token / length, chunk = token % length / size, at = token % size;
    const bool second = chunk >= parts;
    const std::int64_t part = second ? 2 * parts - 1 - chunk : chunk;
    return part * part_tokens() + row * part_length() + (second ? size : 0) + at;
  }
  // First tokens of the chunks of a part, ascending.
  [[nodiscard]] std::vector<std::int64_t> begins(std::int64_t part) const {
    std::vector<std::int64_t> all;
    for (std::int64_t row = 0; row < rows; ++row)
      for (const std::int64_t chunk : {part, 2 * parts - 1 - part}) all.push_back(row * length + chunk * size);
    return all;
  }
};

Tensor from_rows(const Shape& shape, const std::vector<std::int32_t>& values, Device pinned_for) {
  const Tensor tensor = Tensor::empty_pinned(shape, DType::i32, pinned_for);
  std::ranges::copy(values, tensor.data<std::int32_t>());
  return tensor;
}

Tensor selected(const Tensor& values, const Shape& shape, const std::vector<std::int32_t>& tokens, Device pinned_for) {
  if (values.device().is_meta()) return Tensor::empty(shape, DType::i32, values.device());
  const Tensor result = Tensor::empty_pinned(shape, DType::i32, pinned_for);
  const std::int32_t* from = values.data<std::int32_t>();
  std::ranges::transform(tokens, result.data<std::int32_t>(), [&](std::int32_t token) { return from[token]; });
  return result;
}

// Sequences of the part, and their keys.
void cut_sequences(const Batch& whole, const Chunks& chunks, Batch& batch, BatchPart& part, Device pinned_for) {
  std::vector<std::int32_t> keys;
  std::vector<std::vector<std::int32_t>> readers(static_cast<std::size_t>(chunks.parts * chunks.part_tokens()));
  const auto add_keys = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t row = chunks.row_of(token);
      readers[static_cast<std::size_t>(row)].push_back(static_cast<std::int32_t>(keys.size()));
      keys.push_back(static_cast<std::int32_t>(row));
    }
  };
  std::size_t first = 0;  // no sequence before it reaches into a later chunk
  std::int64_t local = 0;
  for (const std::int64_t begin : chunks.begins(part.part.index)) {
    const std::int64_t end = begin + chunks.size;
    const auto end_of = [&](std::size_t i) { return whole.sequences[i].q_begin + whole.sequences[i].q_length; };
    while (first < whole.sequences.size() && end_of(first) <= begin) ++first;
    for (std::size_t i = first; i < whole.sequences.size() && whole.sequences[i].q_begin < end; ++i) {
      const SequenceRange& sequence = whole.sequences[i];
      const std::int64_t from = std::max(begin, sequence.q_begin), to = std::min(end, end_of(i));
      if (from >= to) continue;
      const std::int64_t k_begin = std::ssize(keys);
      for (const SharedPrefix& prefix : whole.prefixes)
        if (prefix.sequence == i) add_keys(prefix.begin, prefix.begin + prefix.length);
      add_keys(sequence.q_begin, to);
      batch.sequences.push_back({local + from - begin, to - from, k_begin, std::ssize(keys) - k_begin});
      part.sequences.push_back(i);
    }
    local += chunks.size;
  }
  if (keys.empty()) keys.push_back(-1);  // padding alone
  std::size_t most = 1;
  for (const auto& of_row : readers) most = std::max(most, of_row.size());
  std::vector<std::int32_t> table(readers.size() * most, -1);
  for (std::size_t row = 0; row < readers.size(); ++row)
    std::ranges::copy(readers[row], table.begin() + static_cast<std::ptrdiff_t>(row * most));
  part.keys = from_rows({std::ssize(keys)}, keys, pinned_for);
  part.readers = from_rows({std::ssize(readers), static_cast<std::int64_t>(most)}, table, pinned_for);
}

}  // namespace

Batch part_of(Batch whole, const SequencePart& part, Device pinned_for) {
  if (part.is_whole()) return whole;
  const MemoryScope scope(MemoryCategory::data);
  const Chunks chunks(whole, part);
  auto of_part = std::make_shared<BatchPart>(BatchPart{.part = part});
  for (const std::int64_t begin : chunks.begins(part.index))
    for (std::int64_t token = begin; token < begin + chunks.size; ++token)
      of_part->tokens.push_back(static_cast<std::int32_t>(token));
  const Shape shape{chunks.rows, chunks.part_length()};
  Batch batch{selected(whole.input_ids, shape, of_part->tokens, pinned_for),
              selected(whole.labels, shape, of_part->tokens, pinned_for),
              selected(whole.positions, shape, of_part->tokens, pinned_for),
              {},
              whole.valid_tokens / part.count,
              whole.first_sample,
              whole.pairs};
  if (!batch.labels.device().is_meta()) {
    const std::span labels(batch.labels.data<std::int32_t>(), static_cast<std::size_t>(batch.labels.numel()));
    batch.valid_tokens = std::ssize(labels) - std::ranges::count(labels, kIgnoreLabel);
  }
  cut_sequences(whole, chunks, batch, *of_part, pinned_for);
  of_part->whole = std::make_shared<const Batch>(std::move(whole));
  batch.part = std::move(of_part);
  return batch;
}

}  // namespace quench
