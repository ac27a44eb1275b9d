#pragma once
// Attention of new tokens, one per sequence, over a paged KV cache: half-split RoPE (core/ops/rope.h), append of k and
// v, attention (PagedAttention: Kwon et al., 2023, arXiv:2309.06180).
//
// The cache is pages of `page` rows; a sequence's key j is in row j % page of its page j / page. Keys are summed in
// fixed parts of kPagedSplitKeys: a row of `out` depends on its own sequence alone, bit for bit, and not on the batch.
// With `pages` in a ReadOnlyWeightsScope, positions, pages and rows of earlier tokens are read while the preceding
// kernel runs.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct PagedAttentionArgs {
  // [B, (heads + 2 kv_heads) * D]: q, k, v of each sequence's new token; f32/bf16, contiguous; undefined afterwards.
  Tensor qkv;
  Tensor cos{}, sin{};    // f32 [positions, D/2]; undefined: no RoPE
  Tensor positions;       // i32 [B]: place of the token in its sequence, row of cos and sin; -1: no token, out is 0
  Tensor pages;           // i32 [B, P]: pages of each sequence; positions are below P * page
  std::int64_t page = 0;  // a power of two from 16
  Tensor cache;           // [rows, 2 kv_heads * D]: k, v; dtype of qkv, or codes (cache_codes.h)
  Tensor scales{};        // codes alone: f32 [2 kv_heads], or [rows, 2 kv_heads]
  Tensor out;             // out, [B, heads * D], contiguous
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t window = 0;  // AttentionArgs::window
  std::int64_t chunk = 0;   // tokens see keys of their own chunk of so many tokens; 0: all
  float scale = 1.0f;
  float soft_cap = 0.0f;  // AttentionArgs::soft_cap
  Tensor sinks{};         // AttentionArgs::sinks
  bool hadamard = false;  // codes alone: q and k are transformed after RoPE (hadamard.h)
};

inline constexpr std::int64_t kPagedSplitKeys = 256;

extern constinit KernelSlot<PagedAttentionArgs> paged_attention_slot;

// Heads of `dim` elements of `dtype` that the device's kernel takes; others: attention() of gathered rows.
[[nodiscard]] bool paged_attention_takes(Device device, DType dtype, std::int64_t dim, bool coded);

void paged_attention(const PagedAttentionArgs& args);

}  // namespace quench
