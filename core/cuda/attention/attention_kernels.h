#pragma once
// Attention kernels, dispatched by core/cuda/attention/attention.cpp.

#include "core/cuda/cudnn/attention_layout.h"

namespace quench::cuda {

// Any shape with D <= 256, f32 or bf16. Deterministic.
void tiled_attention(const AttentionArgs& args, const LseLayout& lse);
void tiled_attention_backward(const AttentionBackwardArgs& args, const LseLayout& lse);

// New token of a decode step: the last key of its sequence, not in k and v yet.
struct NewToken {
  Tensor key, value;  // [1,kv_heads,D]; key and query before RoPE
  Tensor cos, sin;    // f32 [positions,D/2], or undefined
  Tensor position;    // i32 [1]: row of the RoPE tables, and of k and v
};

// Decode kernel: few queries per sequence, split keys, no lse. New token: applies RoPE (core/ops/rope.h) to its query
// and key and appends key and value; needs D a multiple of 16 and 16-byte alignment.
[[nodiscard]] bool decode_takes(const AttentionArgs& args);
void decode_attention(const AttentionArgs& args, const NewToken* fresh = nullptr);

// Zeroes rows of [N,heads,D] outside every sequence; their lse, if defined, becomes minus infinity.
struct RowRange {
  std::int64_t begin, length;
};
void clear_rows(const Tensor& x, std::span<const RowRange> rows, const Tensor& lse = {}, const LseLayout& at = {});

}  // namespace quench::cuda
