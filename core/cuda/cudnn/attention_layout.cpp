#include "core/cuda/cudnn/attention_layout.h"

#include <algorithm>

namespace quench::cuda {
namespace {

// Multiples of 16 bytes.
constexpr std::int64_t kDimStep = 8, kMaxDim = 256;
// Dense plans are per length; varying lengths are seldom multiples of this, and share ragged plans.
constexpr std::int64_t kUniformStep = 128;

bool is_uniform(std::span<const SequenceRange> sequences) {
  const SequenceRange& first = sequences[0];
  if (first.q_length != first.k_length || first.q_length % kUniformStep != 0) return false;
  std::int64_t offset = 0;
  return std::all_of(sequences.begin(), sequences.end(), [&](const SequenceRange& s) {
    const bool fits = s.q_length == first.q_length && s.k_length == first.k_length &&
                      s.q_begin == first.q_begin + offset && s.k_begin == first.k_begin + offset;
    offset += first.q_length;
    return fits;
  });
}

}  // namespace

AttentionLayout attention_layout(const Tensor& q, const Tensor& k, std::span<const SequenceRange> sequences,
                                 bool causal) {
  const std::int64_t dim = q.size(2);
  if (q.dtype() != DType::bf16 || dim == 0 || dim % kDimStep != 0 || dim > kMaxDim || k.size(0) == 0 ||
      sequences.empty())
    return AttentionLayout::general;
  // Without a visible key, cuDNN leaves a query's outputs undefined.
  const bool every_query_sees = std::all_of(sequences.begin(), sequences.end(), [&](const SequenceRange& s) {
    return (s.q_length > 0) == (s.k_length > 0) && (!causal || s.q_length <= s.k_length);
  });
  if (!every_query_sees) return AttentionLayout::general;
  return is_uniform(sequences) && sequences[0].q_length > 0 ? AttentionLayout::uniform : AttentionLayout::packed;
}

LseLayout lse_layout(AttentionLayout layout, const Tensor& q, std::span<const SequenceRange> sequences) {
  switch (layout) {
    case AttentionLayout::general: break;
    case AttentionLayout::uniform: return {q.size(1), sequences[0].q_length, 1};
    case AttentionLayout::packed: return {q.size(1), 1, q.size(1)};
  }
  return {1, q.size(0), 1};
}

LseLayout gap_lse_layout(AttentionLayout layout, const Tensor& q) {
  return lse_layout(layout == AttentionLayout::general ? layout : AttentionLayout::packed, q, {});
}

}  // namespace quench::cuda
