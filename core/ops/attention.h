#pragma once
// Scaled dot-product attention with grouped queries over packed sequences, without ever holding a T x T matrix:
// blockwise softmax with running maximum and sum (Dao et al., 2022, arXiv:2205.14135), forward and backward.

#include <span>

#include "core/device/kernel_slot.h"
#include "core/number/host_device.h"
#include "core/tensor/tensor.h"

namespace quench {

// One independent sequence: queries q_begin .. q_begin+q_length-1 attend to keys k_begin .. k_begin+k_length-1 only.
// Under the causal mask query i sees keys up to i + (k_length - q_length): the last query sees every key, so a
// key-value cache needs no special case. Sequences do not overlap in q; rows of q in no sequence give 0.
struct SequenceRange {
  std::int64_t q_begin = 0;
  std::int64_t q_length = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_length = 0;
};

// The first key that query number `query` of a sequence sees under a causal mask and a window (AttentionArgs::window).
[[gnu::always_inline]] QUENCH_HOST_DEVICE constexpr std::int64_t first_visible_key(const SequenceRange& s,
                                                                                   std::int64_t window,
                                                                                   std::int64_t query) {
  if (window == 0) return 0;
  const std::int64_t first = query + 1 + s.k_length - s.q_length - window;
  return first < 0 ? 0 : first < s.k_length ? first : s.k_length;
}

struct AttentionArgs {
  Tensor q;    // [Nq,heads,D]; f32 or bf16; views into a fused projection are fine (last axis contiguous)
  Tensor k;    // [Nk,kv_heads,D]; heads % kv_heads == 0; query head h reads kv head h / (heads / kv_heads)
  Tensor v;    // [Nk,kv_heads,D]
  Tensor out;  // [Nq,heads,D], contiguous
  // f32 [heads,Nq]: log of the sum of exponentials of scaled scores; undefined when not wanted. For the backward pass
  // of the same device and sequences only: on CUDA the order of the elements follows from the shapes
  // (core/cuda/cudnn/attention_layout.h), as cuDNN wants it.
  Tensor lse;
  std::span<const SequenceRange> sequences;
  bool causal = true;
  // Under the causal mask, how many keys a query sees at most, its own among them: those of number i - window + 1 to i.
  // 0: all before it.
  std::int64_t window = 0;
  float scale = 1.0f;  // > 0; usually 1/sqrt(D)
  // i32 [1], or undefined: the number of the last key of the one sequence there is, counted from k_begin, which the
  // device alone knows; k_length is then a bound. For generation: few queries, no lse.
  Tensor last_key{};
};

struct AttentionBackwardArgs {
  Tensor dout;               // [Nq,heads,D], contiguous
  Tensor q, k, v, out, lse;  // as in and from the forward pass
  Tensor dq;                 // out, shape of q (views into a fused gradient are fine); every row is written
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
