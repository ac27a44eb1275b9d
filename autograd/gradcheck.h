#pragma once
// Gradient check: gradients of a differentiable function against central differences, on f32 host tensors.

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace quench::autograd {

// Steps and bounds of gradcheck().
struct GradcheckOptions {
  double step = 1e-2;       // for f32 inputs of order 1
  double tolerance = 1e-2;  // maximum relative L2 error of a gradient
  int directions = 4;       // random directions per input
  std::uint64_t seed = 1;
  Recompute recompute = Recompute::none;
};

// Outcome; `failure` names input and direction.
struct GradcheckResult {
  bool ok = true;
  double worst = 0;
  std::string failure;  // empty when ok
};

// `function` maps f32 host tensors to one tensor, reduced with fixed random weights to a number L. For each input x and
// random direction d, <dL/dx, d> is compared with (L(x + h d) - L(x - h d)) / 2h in f64. Errors are relative to |dL/dx|
// |d|.
[[nodiscard]] GradcheckResult gradcheck(const std::function<Variable(const std::vector<Variable>&)>& function,
                                        const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace quench::autograd
