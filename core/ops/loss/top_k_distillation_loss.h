#pragma once
// Distillation from the K most probable tokens of a teacher (top_k_log_probs.h), mixed with cross-entropy, and its
// gradient.

#include "core/ops/loss/distillation_loss.h"

namespace quench {

// Divergence of distributions over K + 1 outcomes: the kept tokens, and all others as one. The gradient with respect to
// the logits of other tokens is that of their joint probability: shared by the student's own proportions. K = V: the
// divergence over the vocabulary.
struct TopKDistillationLossArgs {
  Tensor logits;           // [N,V], contiguous; f32/bf16
  Tensor ids;              // i32 [N,K], 1 <= K <= V, distinct within a row; not read where the label is kIgnoreLabel
  Tensor log_probs;        // f32 [N,K]: of the teacher at the temperature; normalised with `tail`
  Tensor tail;             // f32 [N]: log of the teacher's probability of all other tokens
  Tensor labels;           // i32 [N]; kIgnoreLabel: outputs 0
  Tensor losses;           // out, f32 [N]: cross_entropy_weight CE + divergence_weight T^2 D
  Tensor cross_entropies;  // out, f32 [N]: CE of logits and labels
  Tensor divergences;      // out, f32 [N]: D
  Tensor dlogits;          // out, optional, [N,V], f32/bf16: grad_scale * gradient of losses; may alias logits
  Divergence divergence = Divergence::forward_kl;
  float temperature = 1.0f;  // T > 0; not of the cross-entropy
  float beta = 0.5f;         // in (0,1), of jensen_shannon
  float cross_entropy_weight = 0.0f;
  float divergence_weight = 1.0f;
  float grad_scale = 1.0f;
};

extern constinit KernelSlot<TopKDistillationLossArgs> top_k_distillation_loss_slot;

// f32 arithmetic; a term of probability 0 is 0. Names row and label or id outside [0,V) (CPU); NaN (GPU).
void top_k_distillation_loss(const TopKDistillationLossArgs& args);

}  // namespace quench
