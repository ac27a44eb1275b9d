#pragma once
// The attention kernels of this program, chosen among by core/cuda/attention/attention.cpp.

#include "core/cuda/cudnn/attention_layout.h"

namespace quench::cuda {

// Any shape with D <= 256, f32 or bf16. The same bits on every run.
void tiled_attention(const AttentionArgs& args, const LseLayout& lse);
void tiled_attention_backward(const AttentionBackwardArgs& args, const LseLayout& lse);

// Few queries a sequence, keys cut into parts that are merged. Writes no lse.
[[nodiscard]] bool decode_takes(const AttentionArgs& args);
void decode_attention(const AttentionArgs& args);

// Zeroes rows of [N,heads,D] that lie in no sequence; sets their lse, where there is one, to minus infinity.
struct RowRange {
  std::int64_t begin, length;
};
void clear_rows(const Tensor& x, std::span<const RowRange> rows, const Tensor& lse = {}, const LseLayout& at = {});

}  // namespace quench::cuda
