#pragma once
// Scaled dot-product attention (GQA) over packed sequences, forward and backward: blockwise online softmax
// (FlashAttention, Dao et al., 2022, arXiv:2205.14135).

#include <span>

#include "core/device/kernel_slot.h"
#include "core/number/host_device.h"
#include "core/tensor/tensor.h"

namespace quench {

// Sequence of a packed batch: its queries attend to its keys only. Causal: query i sees keys up to i + (k_length -
// q_length), so the last query sees every key of a KV cache. Disjoint in q; rows of q in no sequence give 0.
struct SequenceRange {
  std::int64_t q_begin = 0;
  std::int64_t q_length = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_length = 0;
};

// First key visible to a query under the causal mask and AttentionArgs::window.
[[gnu::always_inline]] QUENCH_HOST_DEVICE constexpr std::int64_t first_visible_key(const SequenceRange& s,
                                                                                   std::int64_t window,
                                                                                   std::int64_t query) {
  if (window == 0) return 0;
  const std::int64_t first = query + 1 + s.k_length - s.q_length - window;
  return first < 0 ? 0 : first < s.k_length ? first : s.k_length;
}

struct AttentionArgs {
  Tensor q;    // [Nq,heads,D], f32 or bf16; may be a view of the fused projection (contiguous last axis)
  Tensor k;    // [Nk,kv_heads,D], heads % kv_heads == 0; query head h reads kv head h / (heads / kv_heads)
  Tensor v;    // [Nk,kv_heads,D]
  Tensor out;  // [Nq,heads,D], contiguous
  // f32 [heads,Nq]: log-sum-exp of the scaled scores, may be undefined. Valid for the backward pass of the same device
  // and sequences; CUDA uses cuDNN's element order (core/cuda/cudnn/attention_layout.h).
  Tensor lse;
  std::span<const SequenceRange> sequences;
  bool causal = true;
  // Sliding window of the causal mask: query i sees keys i - window + 1 to i. 0: unbounded.
  std::int64_t window = 0;
  float scale = 1.0f;  // > 0; usually 1/sqrt(D)
  // i32 [1] on the device, or undefined: last key of the only sequence, relative to k_begin; k_length is an upper
  // bound. For decode: few queries, no lse.
  Tensor last_key{};
};

struct AttentionBackwardArgs {
  Tensor dout;               // [Nq,heads,D], contiguous
  Tensor q, k, v, out, lse;  // as in the forward pass
  Tensor dq;                 // out, shape of q, may be a view of a fused gradient; every row is written
  Tensor dk;                 // out, shape of k
  Tensor dv;                 // out, shape of v
  std::span<const SequenceRange> sequences;
  bool causal = true;
  std::int64_t window = 0;
  float scale = 1.0f;
};

extern constinit KernelSlot<AttentionArgs> attention_slot;
extern constinit KernelSlot<AttentionBackwardArgs> attention_backward_slot;

void attention(const AttentionArgs& args);
void attention_backward(const AttentionBackwardArgs& args);

}  // namespace quench
