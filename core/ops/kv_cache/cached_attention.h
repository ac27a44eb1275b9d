#pragma once
// Attention over a KV cache, quantized or not: half-split RoPE (core/ops/rope.h), append of k and v, attention.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/ops/attention.h"
#include "core/tensor/tensor.h"

namespace quench {

struct CachedAttentionArgs {
  // [N, (heads + 2 kv_heads) * D]: q, k, v; f32/bf16, contiguous; undefined afterwards.
  Tensor qkv;
  Tensor cos{}, sin{};  // f32 [positions, D/2]; undefined: no RoPE
  Tensor positions;     // i32 [N]: rows of cos, sin and cache
  Tensor cache;         // [capacity, 2 kv_heads * D]: k, v; dtype of qkv, or codes (cache_codes.h)
  Tensor scales{};      // codes alone: f32 [2 kv_heads], or [capacity, 2 kv_heads]
  Tensor out;           // out, [N, heads * D], contiguous
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::span<const SequenceRange> sequences;  // keys count cache rows
  std::int64_t window = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;          // AttentionArgs::soft_cap
  Tensor sinks{};                 // AttentionArgs::sinks
  bool hadamard = false;          // codes alone: q and k are transformed after RoPE (hadamard.h)
  bool length_on_device = false;  // by AttentionArgs::last_key, positions
};

// Fused decode of one token; does not write qkv.
extern constinit KernelSlot<CachedAttentionArgs> cached_attention_slot;

// Falls back to rope, copy_rows or append_codes, and attention or coded_attention, bit-identical.
void cached_attention(const CachedAttentionArgs& args);

}  // namespace quench
