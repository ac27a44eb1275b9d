#pragma once
// How the sequences of an attention call lie in memory, and where each row's logarithm goes: pure functions of the
// shapes, so that the forward and the backward pass agree whichever kernels serve them.

#include <span>

#include "core/ops/attention.h"

namespace quench::cuda {

enum class AttentionLayout {
  general,  // anything; for the kernels of this program
  uniform,  // cuDNN's dense form: sequences of one length, queries as keys, end to end
  packed,   // cuDNN's ragged form: documents of any lengths
};

[[nodiscard]] AttentionLayout attention_layout(const Tensor& q, const Tensor& k,
                                               std::span<const SequenceRange> sequences, bool causal);

// The lse of query i of sequence s and head h is element s.q_begin * sequence + h * head + i * row.
struct LseLayout {
  std::int64_t sequence, head, row;
};
// general: [heads,Nq]. uniform: [sequences,heads,length], as cuDNN's backward pass wants it. packed: [Nq,heads].
[[nodiscard]] LseLayout lse_layout(AttentionLayout layout, const Tensor& q, std::span<const SequenceRange> sequences);
// The same for runs of rows in no sequence.
[[nodiscard]] LseLayout gap_lse_layout(AttentionLayout layout, const Tensor& q);

}  // namespace quench::cuda
