#pragma once
// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): momentum whose matrices are
// made orthogonal by a Newton-Schulz iteration (nn/optim/orthogonalize.h), as torch.optim.Muon computes it.
//
// Each piece of a fused projection is a matrix of its own. The step of an [R, C] matrix is scaled by 0.2 sqrt(max(R,
// C)), which gives it the root mean square of AdamW's steps (Liu et al., "Muon is scalable for LLM training", 2025), so
// that one learning rate serves both.

#include <span>
#include <vector>

#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

// What Muon is for: a matrix that the options do not leave to AdamW.
[[nodiscard]] bool suits_muon(const Parameter& parameter, const OptimizerOptions& options);

class Muon final : public Optimizer {
 public:
  // Every parameter is a whole matrix on this process, or options.rows brings it together; throws unsupported
  // otherwise. Momentum starts at zero.
  Muon(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  struct Entry {
    Tensor momentum, master;
  };
  // One matrix: a piece of a parameter.
  struct Matrix {
    std::size_t parameter;
    ParameterPiece piece;
    std::int64_t columns;
  };
  struct Step {
    double lr;
    std::int64_t number;
    Tensor grad_scale;
  };

  [[nodiscard]] std::vector<Matrix> matrices(ParameterRange part) const;
  // The rows of the matrix that this process holds: within the parameter's local tensors.
  [[nodiscard]] ShardSpec own_rows(const Matrix& matrix) const;
  // The momentum of this process's rows, stepped and as the update starts from it, to `update`, bf16.
  void step_momentum(const Matrix& matrix, const Step& step, const Tensor& update);
  void apply(const Matrix& matrix, const Step& step, const Tensor& update);
  // Of one shape, or as many as there are processes, or fewer: rounds of as many as there are processes, matrix j of a
  // round to process j.
  void step_rounds(std::span<const Matrix> matrices, const Step& step);
  struct Round;
  // `whole`: the place of this process's matrix, flat; without one it is empty.
  [[nodiscard]] Round make_round(std::span<const Matrix> matrices, const Tensor& whole) const;

  OptimizerOptions options_;
  std::vector<Entry> entries_;  // of parameters()
};

}  // namespace quench::nn
