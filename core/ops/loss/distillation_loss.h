#pragma once
// Divergence between teacher and student distributions, mixed with cross-entropy, and its gradient.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// p = softmax(teacher / T), q = softmax(logits / T).
enum class Divergence : std::uint8_t {
  forward_kl,      // sum p (log p - log q) (Hinton et al., 2015)
  reverse_kl,      // sum q (log q - log p) (Gu et al., 2023, MiniLLM)
  jensen_shannon,  // beta KL(p | m) + (1 - beta) KL(q | m), m = beta p + (1 - beta) q (Agarwal et al., 2023, GKD)
};

// Distribution p of each row: the teacher's logits, or its K most probable tokens (top_k_log_probs.h). With the latter,
// distributions are over K + 1 outcomes: the kept tokens, and all others as one. The gradient with respect to the
// logits of other tokens is that of their joint probability: shared by the student's own proportions. K = V: the
// divergence over the vocabulary.
struct DivergenceTarget {
  Tensor logits{};     // [N,V], contiguous, dtype of the student's; or undefined
  Tensor ids{};        // i32 [N,K], 1 <= K <= V, distinct within a row; not read where the label is kIgnoreLabel
  Tensor log_probs{};  // f32 [N,K]: at the temperature; normalised with `tail`
  Tensor tail{};       // f32 [N]: log of the probability of all other tokens

  [[nodiscard]] bool is_top_k() const noexcept { return ids.defined(); }
};

struct DistillationLossArgs {
  Tensor logits;            // [N,V], contiguous; f32/bf16
  DivergenceTarget target;  // distribution of the teacher
  Tensor labels;            // i32 [N]; kIgnoreLabel: outputs 0
  Tensor losses;            // out, f32 [N]: cross_entropy_weight CE + divergence_weight T^2 D
  Tensor cross_entropies;   // out, f32 [N]: CE of logits and labels
  Tensor divergences;       // out, f32 [N]: D
  Tensor dlogits{};         // out, optional, [N,V], f32/bf16: grad_scale * gradient of losses; may alias logits
  Divergence divergence = Divergence::forward_kl;
  float temperature = 1.0f;  // T > 0; not of the cross-entropy
  float beta = 0.5f;         // in (0,1), of jensen_shannon
  float cross_entropy_weight = 0.0f;
  float divergence_weight = 1.0f;
  float grad_scale = 1.0f;
};

extern constinit KernelSlot<DistillationLossArgs> distillation_loss_slot;

// f32 arithmetic; a term of probability 0 is 0. Labels and ids outside [0,V): named with their row (CPU), NaN (GPU).
void distillation_loss(const DistillationLossArgs& args);

}  // namespace quench
