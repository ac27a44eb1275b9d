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
  const auto answers = std::ssize(batch.sequences), count = std::ssize(batch.pairs);
  if (device.is_meta()) {
    ranges_ = Tensor::empty({answers, 2}, DType::i32, device);
    owners_ = Tensor::empty({rows.labels().numel()}, DType::i32, device);
    tokens_ = Tensor::empty({answers}, DType::i32, device);
    pairs_ = Tensor::empty({count, 2}, DType::i32, device);
    if (with_prompts) prompts_ = Tensor::empty_like(owners_);
    return;
  }
  const auto* labels = batch.labels.data<std::int32_t>();
  std::vector<std::int32_t> owners(static_cast<std::size_t>(batch.labels.numel()), -1), ranges, tokens, pairs;
  for (std::int64_t answer = 0; answer < answers; ++answer) {
    const SequenceRange& sequence = batch.sequences[static_cast<std::size_t>(answer)];
    std::int32_t targets = 0;
    for (std::int64_t row = sequence.q_begin; row < sequence.q_begin + sequence.q_length; ++row) {
      if (labels[row] == kIgnoreLabel) continue;
      owners[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(answer);
      ++targets;
    }
    const auto [first, end] = rows.selected_range(sequence.q_begin, sequence.q_begin + sequence.q_length);
    ranges.insert(ranges.end(), {static_cast<std::int32_t>(first), static_cast<std::int32_t>(end)});
    tokens.push_back(targets);
  }
  for (const AnswerPair& pair : batch.pairs)
    pairs.insert(pairs.end(), {static_cast<std::int32_t>(pair.sequence), pair.desirable ? 1 : 0});
  ranges_ = on_device({answers, 2}, ranges, device);
  tokens_ = on_device({answers}, tokens, device);
  pairs_ = on_device({count, 2}, pairs, device);
  const std::vector<std::int32_t> selected = rows.select(owners, -1);
  owners_ = on_device({std::ssize(selected)}, selected, device);
  if (!with_prompts) return;
  std::ranges::fill(owners, -1);
  for (const AnswerPair& pair : batch.pairs) {
    const SequenceRange& chosen = batch.sequences[pair.sequence];
    std::fill_n(owners.begin() + chosen.q_begin, chosen.q_length, static_cast<std::int32_t>(pair.sequence));
    prompt_rows_ += chosen.q_length;
  }
  prompts_ = on_device({std::ssize(selected)}, rows.select(owners, -1), device);
}

Tensor AnswerIndex::sums(const AnswerRows& rows, const Tensor& losses) const {
  const Tensor result = Tensor::empty({answers()}, DType::f64, losses.device());
  answer_sums({.rows = rows, .losses = losses, .logps = result});
  return result;
}

}  // namespace quench
