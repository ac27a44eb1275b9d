#pragma once
// Numeric check of a differentiable function: its gradients against central differences.

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace quench::autograd {

struct GradcheckOptions {
  double step = 1e-2;       // of the central differences; f32 inputs of order 1
  double tolerance = 1e-2;  // largest relative L2 error of a gradient
  int directions = 4;       // random directions per input
  std::uint64_t seed = 1;
  Recompute recompute = Recompute::none;  // of the pass whose gradients are checked
};

struct GradcheckResult {
  bool ok = true;
  double worst = 0;     // largest relative error seen
  std::string failure;  // empty when ok
};

// `function` maps variables to one output tensor of any shape; it is called on f32 host tensors. The output is reduced
// by fixed random weights to a number L, and for each input x and random direction d the analytic <dL/dx, d> is held
// against (L(x + h d) - L(x - h d)) / 2h in f64. Errors are relative to the norm of the gradient times that of d.
[[nodiscard]] GradcheckResult gradcheck(const std::function<Variable(const std::vector<Variable>&)>& function,
                                        const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace quench::autograd
