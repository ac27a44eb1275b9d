#pragma once
// Sensitivity of a model's output to errors of its weights, measured on calibration data.

#include <map>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

// Part of a cost of errors e of a weight [N,K]: the sum over rows i and columns j of rows[i] * columns[j] * e_ij^2.
struct ErrorWeights {
  std::vector<double> rows;     // [N]
  std::vector<double> columns;  // [K]
};

// Fisher information of weights: the squares of the gradients of each sequence's loss, for next tokens drawn from the
// model's own distribution, as their sums by row and by column (F_ij: row sum i * column sum j / total). The expected
// KL divergence of the perturbed model, in nats a token, is half the sum of F_ij * e_ij^2, as far as errors are small
// and independent of each other.
class Sensitivity {
 public:
  // One forward and one backward pass over the first sequences of `data`, at most 16384 tokens (at least one sequence).
  // Layers compute in high precision, as they do afterwards. Deterministic. Throws nonfinite naming the layer.
  Sensitivity(nn::CausalLm& model, const CalibrationData& data);

  // Weights of a linear layer, an expert's matrix, or the embedding table, where lookups of all tokens count alike;
  // tied, it counts as head too. Empty: no data, such as of an expert that no token reaches, or of an MTP layer.
  [[nodiscard]] std::vector<ErrorWeights> of(const ModelTensor& tensor) const;
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  // Number of sequences that were used, the first ones.
  [[nodiscard]] std::size_t sequences() const noexcept { return sequences_; }

  // Mean squares of a linear layer's inputs [K]; empty: no data, or another tensor.
  [[nodiscard]] std::vector<float> inputs(const ModelTensor& tensor) const;

  // Sums of squares of one matrix [N,K]: of inputs [K], and of weight gradients by row [N] and by column [K].
  struct Sums {
    std::vector<double> inputs, rows, columns;
    std::int64_t tokens = 0;
  };

 private:
  [[nodiscard]] const Sums* sums_of(const ModelTensor& tensor) const;     // null: no data
  using ByParameter = std::map<const nn::Parameter*, std::vector<Sums>>;  // one, or one per expert

  void run(nn::CausalLm& model, const std::vector<std::int32_t>& sequence, std::uint64_t number);
  [[nodiscard]] Tensor draw_labels(const Tensor& logits, std::uint64_t number);

  ByParameter linear_;
  Sums head_, table_;  // rows of the head: of the logits' gradients; columns of the table: of its outputs'
  std::int64_t tokens_ = 0;
  std::size_t sequences_ = 0;
  bool tied_ = false;
  const nn::Parameter* head_weight_ = nullptr;
};

}  // namespace quench
