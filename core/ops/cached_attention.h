#pragma once
// Attention over a KV cache: RoPE of queries and keys (core/ops/rope.h, half-split), append of keys and values,
// attention.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/ops/attention.h"
#include "core/tensor/tensor.h"

namespace quench {

struct CachedAttentionArgs {
  // [N, (heads + 2 kv_heads) * D]: queries, keys, values; f32 or bf16, contiguous. Contents are undefined afterwards
  // (RoPE in place).
  Tensor qkv;
  Tensor cos, sin;   // f32 [positions, D/2], or undefined: no RoPE
  Tensor positions;  // i32 [N]: rows of cos and sin, and of the cache
  Tensor cache;      // [capacity, 2 kv_heads * D], dtype of qkv: keys, then values
  Tensor out;        // out, [N, heads * D], contiguous
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::span<const SequenceRange> sequences;  // k_begin and k_length count cache rows
  std::int64_t window = 0;
  float scale = 1.0f;
  bool length_on_device = false;  // positions is AttentionArgs::last_key
};

// Fused decode kernel of one token; does not write qkv.
extern constinit KernelSlot<CachedAttentionArgs> cached_attention_slot;

// Falls back to rope, copy_rows and attention with bit-identical results.
void cached_attention(const CachedAttentionArgs& args);

}  // namespace quench
