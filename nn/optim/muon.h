#pragma once
// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): momentum whose matrices are
// made orthogonal by a Newton-Schulz iteration, as torch.optim.Muon computes it.
//
// Each piece of a fused projection is a matrix of its own. The step of an [R, C] matrix is scaled by 0.2 sqrt(max(R,
// C)), which gives it the root mean square of AdamW's steps (Liu et al., "Muon is scalable for LLM training", 2025), so
// that one learning rate serves both.

#include <vector>

#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// What Muon is for: a matrix that the options do not leave to AdamW.
[[nodiscard]] bool suits_muon(const Parameter& parameter, const OptimizerOptions& options);

class Muon final : public Optimizer {
 public:
  // Every parameter is a whole matrix on this process; throws unsupported for a shard. Momentum starts at zero.
  Muon(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  struct Entry {
    Tensor momentum, master;
  };
  OptimizerOptions options_;
  std::vector<Entry> entries_;  // of parameters()
};

// The matrix nearest to orthogonal, up to singular values of 0.7 to 1.2: five iterations in bf16 of
// x = 3.4445 x - 4.7750 (x x^T) x + 2.0315 (x x^T)^2 x from x divided by its norm. x is bf16 [R, C]; in and out.
void orthogonalize(const Tensor& x);

}  // namespace quench::nn
