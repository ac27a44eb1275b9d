#pragma once
// The attention kernels of this program, chosen among by core/cuda/attention/attention.cpp.

#include "core/cuda/cudnn/attention_layout.h"

namespace quench::cuda {

// Any shape with D <= 256, f32 or bf16. The same bits on every run.
void tiled_attention(const AttentionArgs& args, const LseLayout& lse);
void tiled_attention_backward(const AttentionBackwardArgs& args, const LseLayout& lse);

// The one token of a call, the last key of its sequence, which k and v do not hold yet.
struct NewToken {
  Tensor key, value;  // [1,kv_heads,D]; the key and the query are not rotated yet
  Tensor cos, sin;    // f32 [positions,D/2], or undefined
  Tensor position;    // i32 [1]: row of the tables, and of k and v
};

// Few queries a sequence, keys cut into parts that are merged. Writes no lse. With a fresh token its query and key are
// rotated (core/ops/rope.h) and its key and value stored in k and v on the way: D a multiple of 16, everything aligned
// to 16 bytes.
[[nodiscard]] bool decode_takes(const AttentionArgs& args);
void decode_attention(const AttentionArgs& args, const NewToken* fresh = nullptr);

// Zeroes rows of [N,heads,D] that lie in no sequence; sets their lse, where there is one, to minus infinity.
struct RowRange {
  std::int64_t begin, length;
};
void clear_rows(const Tensor& x, std::span<const RowRange> rows, const Tensor& lse = {}, const LseLayout& at = {});

}  // namespace quench::cuda
