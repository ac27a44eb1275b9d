#pragma once
// Layers whose products read rounded operands (rounding.h): linear layers, and those of experts.

#include <memory>
#include <vector>

#include "nn/experts/expert_kernel.h"
#include "recipes/emulated/rounding.h"
#include "recipes/recipe.h"

namespace quench::recipes {

// Which of the three products round their operands.
struct EmulatedGemms {
  bool forward = true, dgrad = true, wgrad = true;

  // All but those that a run keeps in high precision.
  [[nodiscard]] static EmulatedGemms without(const std::vector<LinearGemm>& high_precision);
  [[nodiscard]] bool any() const noexcept { return forward || dgrad || wgrad; }
};

// A linear layer saves x itself, and rounds every operand anew. Layers of experts keep the codes of x that the weight's
// gradient reads, where they are less (expert_input.h) and the format has them.
[[nodiscard]] std::shared_ptr<const nn::LinearKernel> emulated_linear(std::shared_ptr<const OperandEmulation> rounding,
                                                                      EmulatedGemms products, LayerHealth health);
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> emulated_experts(std::shared_ptr<const OperandEmulation> rounding,
                                                                       EmulatedGemms products, LayerHealth health);

}  // namespace quench::recipes
