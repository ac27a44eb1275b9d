#pragma once
// Linear and expert layers with emulated quantization of GEMM operands.

#include <memory>
#include <vector>

#include "nn/experts/expert_kernel.h"
#include "recipes/emulated/rounding.h"
#include "recipes/recipe.h"

namespace quench::recipes {

struct EmulatedGemms {
  bool forward = true, dgrad = true, wgrad = true;

  [[nodiscard]] static EmulatedGemms without(const std::vector<LinearGemm>& high_precision);
  [[nodiscard]] bool any() const noexcept { return forward || dgrad || wgrad; }
};

// A linear layer saves x. Expert layers save the columnwise quantized x for wgrad where that is smaller and supported
// by the format.
[[nodiscard]] std::shared_ptr<const nn::LinearKernel> emulated_linear(std::shared_ptr<const OperandEmulation> rounding,
                                                                      EmulatedGemms gemms, LayerHealth health);
[[nodiscard]] std::shared_ptr<const nn::ExpertKernel> emulated_experts(std::shared_ptr<const OperandEmulation> rounding,
                                                                       EmulatedGemms gemms, LayerHealth health);

}  // namespace quench::recipes
