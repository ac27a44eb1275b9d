#pragma once
// The router of a mixture of experts: which experts a token goes to, and with which weights.

#include <string_view>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// How logits become scores.
enum class RouterScoring {
  softmax,  // over all experts (Mixtral, Qwen3-MoE)
  sigmoid,  // each for itself (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)
};

struct RouterRule {
  RouterScoring scoring = RouterScoring::softmax;
  bool normalize = false;  // the weights of a token sum to `factor`
  float factor = 1.0f;
  // Experts in groups of equal size, of which a token's experts come from the best `groups_per_token`. A group counts
  // as much as its two best experts together.
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
};

// Added to the sum that weights are divided by (DeepSeek-V3): sigmoids may all be 0.
inline constexpr float kRouterEpsilon = 1e-20f;

// Whether experts are chosen by their logits: without a bias and groups, which need the scores.
inline bool chooses_by_logits(const RouterRule& rule, bool has_bias) noexcept {
  return rule.scoring == RouterScoring::sigmoid && !has_bias && rule.groups == 1;
}

struct RouterArgs {
  Tensor logits;  // f32 [N,E]
  Tensor bias;    // f32 [E] or undefined: added to the scores for the choice alone, not for the weights
  // Out, i32 [N,k]: the chosen ones, best first; of equal scores the lower expert. Sigmoids of large logits are equal
  // in f32: where nothing is added to them, the logits decide.
  Tensor experts;
  Tensor weights;  // out, f32 [N,k]: factor * score, or factor * score / sum of the chosen scores
  RouterRule rule;
};

// Terms of the training loss that belong to one router, for N tokens with n_e choices of expert e and probabilities p
// (the softmax of the logits).
struct RouterTerms {
  // balance * E * sum over e of (n_e / N) * (mean of p_e): Fedus et al., 2021, arXiv:2101.03961, equation 4, with the
  // sum over k choices as in Transformers' load_balancing_loss_func.
  float balance = 0.0f;
  // z * mean of the squared log-sum-exp of the logits: Zoph et al., 2022, arXiv:2202.08906, equation 5.
  float z = 0.0f;

  [[nodiscard]] bool wanted() const noexcept { return balance != 0.0f || z != 0.0f; }
};

struct RouterBackwardArgs {
  Tensor dweights;  // f32 [N,k]
  Tensor logits;    // f32 [N,E]
  Tensor experts;   // i32 [N,k]
  Tensor counts;    // f32 [E]: choices of each expert; read where terms.balance is not 0
  Tensor dlogits;   // out, f32 [N,E]; the choice itself has no derivative
  RouterRule rule;
  RouterTerms terms;  // whose gradient is added: they are part of the loss with weight 1
};

struct RouterLossArgs {
  Tensor logits;  // f32 [N,E]
  Tensor counts;  // f32 [E]
  Tensor losses;  // out, f32 [2]: the balance and the z term, each with a factor of 1
};

extern constinit KernelSlot<RouterArgs> router_slot;
extern constinit KernelSlot<RouterBackwardArgs> router_backward_slot;
extern constinit KernelSlot<RouterLossArgs> router_loss_slot;

// Arithmetic in f32. Throws invalid_argument where k is larger than the number of experts that a token can choose from
// or groups do not divide the experts. NaN scores lose against all others.
void router(const RouterArgs& args);
void router_backward(const RouterBackwardArgs& args);
void router_loss(const RouterLossArgs& args);

}  // namespace quench
