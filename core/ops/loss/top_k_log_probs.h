#pragma once
// The most probable tokens of a softmax.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct TopKLogProbsArgs {
  Tensor logits;     // [N,V], contiguous; f32/bf16
  Tensor ids;        // out, i32 [N,K], 1 <= K <= V: of the K largest logits, ascending; equal logits: lowest ids
  Tensor log_probs;  // out, f32 [N,K]: log softmax(logits / T) of ids
  Tensor tail;       // out, f32 [N]: log of the probability of all other tokens; -inf if there are none
  float temperature = 1.0f;
};

extern constinit KernelSlot<TopKLogProbsArgs> top_k_log_probs_slot;

// f32 arithmetic. A row with NaN has log-probabilities of NaN.
void top_k_log_probs(const TopKLogProbsArgs& args);

}  // namespace quench
