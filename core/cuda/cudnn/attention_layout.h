#pragma once
// Sequence and lse layout of an attention call: functions of the shapes, equal in forward and backward.

#include <span>

#include "core/ops/attention.h"

namespace quench::cuda {

enum class AttentionLayout {
  general,  // tiled and decode kernels
  uniform,  // cuDNN dense: equal lengths, queries as keys, contiguous
  packed,   // cuDNN ragged: any lengths
};

[[nodiscard]] AttentionLayout attention_layout(const Tensor& q, const Tensor& k,
                                               std::span<const SequenceRange> sequences, bool causal);

// lse of query i, sequence s, head h: element s.q_begin * sequence + h * head + i * row.
struct LseLayout {
  std::int64_t sequence, head, row;
};
// general: [heads,Nq]. uniform: [sequences,heads,length], required by cuDNN's backward. packed: [Nq,heads].
[[nodiscard]] LseLayout lse_layout(AttentionLayout layout, const Tensor& q, std::span<const SequenceRange> sequences);
// For rows outside every sequence.
[[nodiscard]] LseLayout gap_lse_layout(AttentionLayout layout, const Tensor& q);

}  // namespace quench::cuda
