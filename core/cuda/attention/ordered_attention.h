#pragma once
// Attention whose rows have the same bits in training, prefill and decode (core/device/determinism.h), bf16.

#include "core/cuda/attention/attention_kernels.h"
#include "core/ops/kv_cache/paged_attention.h"

namespace quench::cuda {

// D <= 128, a multiple of 8, 16-byte aligned rows, without last_key.
[[nodiscard]] bool ordered_attention_takes(const AttentionArgs& args);
// Without sinks.
void ordered_attention(const AttentionArgs& args, const LseLayout& lse);
// The same for one new token of each sequence; caches in bf16. Sinks as add_sinks().
void ordered_paged_attention(const PagedAttentionArgs& args);

}  // namespace quench::cuda
