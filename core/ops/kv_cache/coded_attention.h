#pragma once
// Attention over a quantized KV cache (cache_codes.h).

#include <span>

#include "core/device/kernel_slot.h"
#include "core/ops/attention.h"

namespace quench {

// Members without a comment: as AttentionArgs'.
struct CodedAttentionArgs {
  Tensor q;       // [Nq, heads, D], f32/bf16
  Tensor cache;   // [capacity, 2 kv_heads * D]: keys, then values
  Tensor scales;  // f32 [2 kv_heads] or [capacity, 2 kv_heads]
  Tensor out;     // out, [Nq, heads, D], contiguous
  std::span<const SequenceRange> sequences;
  std::int64_t window = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;
  Tensor sinks{};
  Tensor last_key{};
};

// Kernels of sequences of at most kFewQueries queries: they read codes, and multiply scores and weights by the scales.
inline constexpr std::int64_t kFewQueries = 8;
extern constinit KernelSlot<CodedAttentionArgs> coded_attention_slot;

// Causal. More queries: attend_decoded(). Queries outside of every sequence give 0.
void coded_attention(const CodedAttentionArgs& args);
// attention() of the visible keys and values in the queries' dtype: in workspace, [visible rows, 2 kv_heads * D].
void attend_decoded(const CodedAttentionArgs& args);

// The call as attention() takes it, its k and v views of codes.
[[nodiscard]] AttentionArgs coded_operands(const CodedAttentionArgs& args);

}  // namespace quench
