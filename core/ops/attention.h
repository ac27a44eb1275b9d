#pragma once
// GQA over packed sequences, forward and backward: FlashAttention (Dao et al., 2022, arXiv:2205.14135).

#include <span>

#include "core/device/kernel_slot.h"
#include "core/number/host_device.h"
#include "core/tensor/tensor.h"

namespace quench {

// Causal: query i sees keys up to i + (k_length - q_length), so the last sees the whole KV cache. Disjoint in q; rows
// outside every sequence give 0.
struct SequenceRange {
  std::int64_t q_begin = 0;
  std::int64_t q_length = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_length = 0;
};

// Keys of rows [begin, begin + length) precede those of a sequence: a beginning that it shares with an earlier one.
struct SharedPrefix {
  std::size_t sequence = 0;  // index
  std::int64_t begin = 0, length = 0;
};

// Within the causal window.
[[gnu::always_inline]] QUENCH_HOST_DEVICE constexpr std::int64_t first_visible_key(const SequenceRange& s,
                                                                                   std::int64_t window,
                                                                                   std::int64_t query) {
  if (window == 0) return 0;
  const std::int64_t first = query + 1 + s.k_length - s.q_length - window;
  return first < 0 ? 0 : first < s.k_length ? first : s.k_length;
}

struct AttentionArgs {
  Tensor q;    // [Nq,heads,D], f32/bf16; contiguous last axis
  Tensor k;    // [Nk,kv_heads,D]; query head h reads h / (heads / kv_heads)
  Tensor v;    // like k
  Tensor out;  // [Nq,heads,D], contiguous
  // f32 [heads,Nq], optional: log-sum-exp of scaled scores, for the backward pass of the same device and sequences;
  // CUDA: cuDNN's element order (attention_layout.h).
  Tensor lse;
  std::span<const SequenceRange> sequences;
  bool causal = true;
  // Query i sees keys i - window + 1 to i; 0: unbounded.
  std::int64_t window = 0;
  float scale = 1.0f;  // > 0
  // Scaled scores s become soft_cap * tanh(s / soft_cap) before the mask (Gemma 2, arXiv:2408.00118, section 2); 0:
  // none.
  float soft_cap = 0.0f;
  // i32 [1] on the device, optional: last key of the only sequence, relative to k_begin; k_length is an upper bound.
  // For decode: few queries, no lse.
  Tensor last_key{};
};

struct AttentionBackwardArgs {
  Tensor dout;
  Tensor q, k, v, out, lse;
  Tensor dq;  // out, may be a view of a fused gradient; every row is written
  Tensor dk;
  Tensor dv;
  std::span<const SequenceRange> sequences;
  bool causal = true;
  std::int64_t window = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;
};

// In units of unscaled scores: capped scores s' = soft_cap(s) are scaled as others.
[[nodiscard]] constexpr float unscaled_cap(float soft_cap, float scale) {
  return soft_cap / scale;
}

extern constinit KernelSlot<AttentionArgs> attention_slot;
extern constinit KernelSlot<AttentionBackwardArgs> attention_backward_slot;

void attention(const AttentionArgs& args);
// Gradients of q, k and v; needs `out` and `lse` of attention().
void attention_backward(const AttentionBackwardArgs& args);

}  // namespace quench
