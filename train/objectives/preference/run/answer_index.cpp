#include "train/objectives/preference/run/answer_index.h"

#include <algorithm>

#include "core/ops/loss/cross_entropy.h"

namespace quench {
namespace {

Tensor on_device(const Shape& shape, const std::vector<std::int32_t>& values, Device device) {
  return Tensor::from_values<std::int32_t>(shape, values).to(device);
}

}  // namespace

AnswerIndex::AnswerIndex(const Batch& batch, const LabelledRows& rows, Device device, bool with_prompts) {
  const MemoryScope scope(MemoryCategory::data);
  const Batch& whole = whole_of(batch);
  const auto answers = std::ssize(whole.sequences), count = std::ssize(batch.pairs);
  if (device.is_meta()) {
    ranges_ = Tensor::empty({answers, 2}, DType::i32, device);
    owners_ = Tensor::empty({rows.labels().numel()}, DType::i32, device);
    tokens_ = Tensor::empty({answers}, DType::i32, device);
    pairs_ = Tensor::empty({count, 2}, DType::i32, device);
    if (with_prompts) prompts_ = Tensor::empty_like(owners_);
    return;
  }
  std::vector<std::int32_t> owners(static_cast<std::size_t>(batch.labels.numel()), -1), prompts = owners, tokens, pairs;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges(static_cast<std::size_t>(answers));
  const auto* all_labels = whole.labels.data<std::int32_t>();
  for (const SequenceRange& answer : whole.sequences)
    tokens.push_back(static_cast<std::int32_t>(
        answer.q_length -
        std::count(all_labels + answer.q_begin, all_labels + answer.q_begin + answer.q_length, kIgnoreLabel)));
  std::vector<bool> is_chosen(static_cast<std::size_t>(answers));
  for (const AnswerPair& pair : batch.pairs) {
    pairs.insert(pairs.end(), {static_cast<std::int32_t>(pair.sequence), pair.desirable ? 1 : 0});
    is_chosen[pair.sequence] = true;
    if (with_prompts) prompt_rows_ += whole.sequences[pair.sequence].q_length;
  }
  const auto* labels = batch.labels.data<std::int32_t>();
  for (std::size_t piece = 0; piece < batch.sequences.size(); ++piece) {
    const SequenceRange& sequence = batch.sequences[piece];
    const std::size_t answer = batch.part ? batch.part->sequences[piece] : piece;
    const std::int64_t end = sequence.q_begin + sequence.q_length;
    for (std::int64_t row = sequence.q_begin; row < end; ++row) {
      if (labels[row] != kIgnoreLabel) owners[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(answer);
      if (is_chosen[answer]) prompts[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(answer);
    }
    auto& range = ranges[answer];
    range = {range.second == 0 ? sequence.q_begin : range.first, end};
  }
  std::vector<std::int32_t> selected_ranges;
  for (const auto& [first, end] : ranges) {
    const auto [selected_first, selected_end] = rows.selected_range(first, end);
    selected_ranges.insert(selected_ranges.end(),
                           {static_cast<std::int32_t>(selected_first), static_cast<std::int32_t>(selected_end)});
  }
  ranges_ = on_device({answers, 2}, selected_ranges, device);
  tokens_ = on_device({answers}, tokens, device);
  pairs_ = on_device({count, 2}, pairs, device);
  const std::vector<std::int32_t> selected = rows.select(owners, -1);
  owners_ = on_device({std::ssize(selected)}, selected, device);
  if (with_prompts) prompts_ = on_device({std::ssize(selected)}, rows.select(prompts, -1), device);
}

Tensor AnswerIndex::sums(const AnswerRows& rows, const Tensor& losses) const {
  const Tensor result = Tensor::empty({answers()}, DType::f64, losses.device());
  answer_sums({.rows = rows, .losses = losses, .logps = result});
  return result;
}

}  // namespace quench
