#pragma once
// Muon (Jordan et al., 2024): momentum orthogonalised by Newton-Schulz iterations (nn/optim/orthogonalize.h), as
// torch.optim.Muon. Pieces of fused projections are separate matrices. The step of an [R, C] matrix is scaled by 0.2
// sqrt(max(R, C)), the RMS of AdamW steps (Liu et al., "Muon is scalable for LLM training", 2025).

#include <span>
#include <vector>

#include "nn/optim/optimizer.h"
#include "nn/optim/optimizer_options.h"

namespace quench::nn {

[[nodiscard]] bool suits_muon(const Parameter& parameter, const OptimizerOptions& options);

class Muon final : public Optimizer {
 public:
  // Throws unsupported for parameters that are neither whole nor gathered by options.rows. Momentum starts at zero.
  Muon(const std::vector<Parameter*>& parameters, OptimizerOptions options);

  using Optimizer::step;
  void step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) override;

 private:
  [[nodiscard]] std::vector<KeptTensor> kept(std::size_t index) override;

  struct Entry {
    Tensor momentum, master;
  };
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
  [[nodiscard]] ShardSpec own_rows(const Matrix& matrix) const;
  // `update`, bf16: input of the orthogonalisation.
  void step_momentum(const Matrix& matrix, const Step& step, const Tensor& update);
  void apply(const Matrix& matrix, const Step& step, const Tensor& update);
  // Matrices of one shape, or at most as many as ranks. In rounds of one matrix per rank.
  void step_rounds(std::span<const Matrix> matrices, const Step& step);
  struct Round;
  // `whole`: flat buffer of this rank's matrix, or empty.
  [[nodiscard]] Round make_round(std::span<const Matrix> matrices, const Tensor& whole) const;

  OptimizerOptions options_;
  std::vector<Entry> entries_;  // by parameters() index
};

}  // namespace quench::nn
