#pragma once
// Attention of tokens behind those of a key-value cache: queries and keys are rotated (core/ops/rope.h, halves of a
// head), keys and values go to the cache, and the queries attend to it.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/ops/attention.h"
#include "core/tensor/tensor.h"

namespace quench {

struct CachedAttentionArgs {
  // [N, (heads + 2 kv_heads) * D]: queries, keys, values; f32 or bf16, contiguous. Its
  // queries and keys may be rotated in place: not to be read afterwards.
  Tensor qkv;
  Tensor cos, sin;   // f32 [positions, D/2], or undefined: no rotation
  Tensor positions;  // i32 [N]: rows of the tables, and of the cache
  Tensor cache;      // [capacity, 2 kv_heads * D] in the dtype of qkv: keys and values side by side
  Tensor out;        // out, [N, heads * D], contiguous
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::span<const SequenceRange> sequences;  // keys are rows of the cache
  std::int64_t window = 0;
  float scale = 1.0f;
  bool length_on_device = false;  // AttentionArgs::last_key is positions
};

// A kernel in one pass, for the one token of generation: queries and keys are read from qkv and left there.
extern constinit KernelSlot<CachedAttentionArgs> cached_attention_slot;

// Where there is no kernel for the operands, the ops one after the other; the same bits.
void cached_attention(const CachedAttentionArgs& args);

}  // namespace quench
