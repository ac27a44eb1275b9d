#pragma once
// Sequence layout and lse layout of an attention call: pure functions of the shapes, so that forward and backward agree
// for any choice of kernels.

#include <span>

#include "core/ops/attention.h"

namespace quench::cuda {

enum class AttentionLayout {
  general,  // any; tiled and decode kernels
  uniform,  // cuDNN dense: equal lengths, queries as keys, contiguous
  packed,   // cuDNN ragged: any lengths
};

[[nodiscard]] AttentionLayout attention_layout(const Tensor& q, const Tensor& k,
                                               std::span<const SequenceRange> sequences, bool causal);

// The lse of query i of sequence s and head h is element s.q_begin * sequence + h * head + i * row.
struct LseLayout {
  std::int64_t sequence, head, row;
};
// general: [heads,Nq]. uniform: [sequences,heads,length], required by cuDNN's backward. packed: [Nq,heads].
[[nodiscard]] LseLayout lse_layout(AttentionLayout layout, const Tensor& q, std::span<const SequenceRange> sequences);
// lse layout of row ranges outside every sequence.
[[nodiscard]] LseLayout gap_lse_layout(AttentionLayout layout, const Tensor& q);

}  // namespace quench::cuda
