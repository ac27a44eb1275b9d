#pragma once
// Tiled and decode attention kernels.

#include "core/cuda/cudnn/attention_layout.h"
#include "core/ops/kv_cache/coded_attention.h"

namespace quench::cuda {

// D <= 256, f32/bf16, without sinks. Deterministic.
void tiled_attention(const AttentionArgs& args, const LseLayout& lse);
void tiled_attention_backward(const AttentionBackwardArgs& args, const LseLayout& lse);

// New token of a decode step, not in k and v yet.
struct NewToken {
  Tensor key, value;      // [1,kv_heads,D], before RoPE, as the query
  Tensor cos, sin;        // f32 [positions,D/2], optional
  Tensor position;        // i32 [1]: row of RoPE tables, k and v
  bool hadamard = false;  // queries and keys are transformed after RoPE; codes alone
};

// Decode: few queries per sequence, no lse; applies sinks. With a new token: fused RoPE (core/ops/rope.h) and append; D
// % 16 == 0, 16-byte alignment.
[[nodiscard]] bool decode_takes(const AttentionArgs& args);
void decode_attention(const AttentionArgs& args, const NewToken* new_token = nullptr);

// The same over codes: bf16, D <= 256, D % 8 == 0, aligned.
[[nodiscard]] bool coded_decode_takes(const CodedAttentionArgs& args);
void decode_coded_attention(const CodedAttentionArgs& args, const NewToken* new_token = nullptr);

// `out` and `lse` of args.sequences without sinks become those with args.sinks.
void add_sinks(const AttentionArgs& args, const Tensor& lse, const LseLayout& at);
// args.dsinks, from `out` and `lse` with sinks.
void sink_gradients(const AttentionBackwardArgs& args, const LseLayout& at);

// Rows of [N,heads,D] become 0, their lse minus infinity.
struct RowRange {
  std::int64_t begin, length;
};
void clear_rows(const Tensor& x, std::span<const RowRange> rows, const Tensor& lse = {}, const LseLayout& at = {});

}  // namespace quench::cuda
