#pragma once
// MoE router: top-k experts per token, and their weights.

#include <string_view>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

enum class RouterScoring {
  softmax,  // Mixtral, Qwen3-MoE
  sigmoid,  // DeepSeek-V3, arXiv:2412.19437, section 2.1.2
};

struct RouterRule {
  RouterScoring scoring = RouterScoring::softmax;
  bool normalize = false;  // weights sum to `factor`
  float factor = 1.0f;
  // The best groups_per_token of equal groups, by the sum of their two best scores.
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
};

// Added to the normalizer (DeepSeek-V3): sigmoids may all be 0.
inline constexpr float kRouterEpsilon = 1e-20f;

// Sigmoid scoring without expert bias or groups.
inline bool chooses_by_logits(const RouterRule& rule, bool has_bias) noexcept {
  return rule.scoring == RouterScoring::sigmoid && !has_bias && rule.groups == 1;
}

struct RouterArgs {
  Tensor logits;  // f32 [N,E]
  Tensor bias{};  // f32 [E], optional: for top-k only
  // out, i32 [N,k], best first; ties: lower index. chooses_by_logits() avoids ties of saturated sigmoids.
  Tensor experts;
  Tensor weights;  // out, f32 [N,k]: factor * score (/ sum of the chosen scores)
  RouterRule rule;
};

// N tokens, n_e choices of expert e, p = softmax of the logits.
struct RouterTerms {
  // balance * E * sum over e of (n_e / N) * (mean of p_e): Fedus et al., 2021, arXiv:2101.03961, equation 4, summed
  // over choices as in Transformers.
  float balance = 0.0f;
  // z * mean of squared log-sum-exp: Zoph et al., 2022, arXiv:2202.08906, equation 5.
  float z = 0.0f;

  [[nodiscard]] bool wanted() const noexcept { return balance != 0.0f || z != 0.0f; }
};

struct RouterBackwardArgs {
  Tensor dweights;  // f32 [N,k]
  Tensor logits;
  Tensor experts;
  Tensor counts;   // f32 [E]: choices, for terms.balance
  Tensor dlogits;  // out, f32 [N,E]; top-k has no gradient
  RouterRule rule;
  RouterTerms terms;  // added with loss weight 1
};

struct RouterLossArgs {
  Tensor logits;
  Tensor counts;
  Tensor losses;  // out, f32 [2]: balance and z, unscaled
};

extern constinit KernelSlot<RouterArgs> router_slot;
extern constinit KernelSlot<RouterBackwardArgs> router_backward_slot;
extern constinit KernelSlot<RouterLossArgs> router_loss_slot;

// f32; NaN ranks last. Invalid: k above the eligible experts, groups that do not divide the experts.
void router(const RouterArgs& args);
void router_backward(const RouterBackwardArgs& args);
void router_loss(const RouterLossArgs& args);

}  // namespace quench
