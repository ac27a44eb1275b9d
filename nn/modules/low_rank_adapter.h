#pragma once
// LoRA (Hu et al., 2021): W + scale * B A for some rows of W. DoRA (Liu et al., 2024): m * (W + scale * B A) / |W +
// scale * B A| with row norms and trained m; the norm is a constant for gradients, as in PEFT.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/modules/linear_kernel.h"
#include "nn/modules/whole_rows.h"

namespace quench::nn {

struct LowRankPiece {
  std::string layer;           // "q_proj"
  std::int64_t row_begin = 0;  // row of the weight
  std::int64_t rows = 0;
  std::int64_t rank_begin = 0;  // row of A
  std::int64_t rank = 0;
  float scale = 1.0f;
};

// One GEMM for A x.
class LowRankAdapter {
 public:
  // `pieces` in row order; rank_begin is filled in. A is uniform in +-1 / sqrt(in), B is 0. Magnitudes are undefined
  // until set_magnitudes(). `split`: of the weight, whose input features and pieces are then those of a slice.
  LowRankAdapter(std::vector<LowRankPiece> pieces, std::int64_t in_features, const ParameterOptions& options,
                 bool magnitudes = false, TensorSplit split = TensorSplit::none);

  // lora_A.weight, then lora_B.<piece>.weight, then lora_magnitude.<piece>; pieces have PEFT's names.
  [[nodiscard]] std::vector<KernelParameter> parameters();
  [[nodiscard]] const std::vector<LowRankPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] const Parameter& a() const noexcept { return a_; }                  // [sum of ranks, in]
  [[nodiscard]] const Parameter& b(std::size_t piece) const { return *b_[piece]; }  // [rows, rank]
  [[nodiscard]] std::int64_t rank() const noexcept { return a_.global_shape[0]; }
  [[nodiscard]] bool has_magnitudes() const noexcept { return !magnitudes_.empty(); }
  [[nodiscard]] const Parameter& magnitude(std::size_t piece) const { return *magnitudes_[piece]; }  // [rows]

  // weight += scale * B A: f32 or bf16 [out,in]. In bf16, product and sum are each rounded once, on the CPU together.
  // `whole` gathers A, B and magnitudes.
  void add_to(const Tensor& weight, const WholeRows& whole = {}) const;
  // Bit-identical to add_to(), without a copy of the weight.
  [[nodiscard]] Tensor added_to(const Tensor& weight) const;
  // add_to(), then magnitudes.
  void merge_into(const Tensor& weight, const WholeRows& whole = {}) const;
  // Row norms of weight + scale * B A: f32 [out].
  [[nodiscard]] Tensor norms(const Tensor& weight) const;
  // No initial change.
  void set_magnitudes(const Tensor& weight);

 private:
  // sum may alias weight.
  void add(const Tensor& weight, const Tensor& sum, const WholeRows& whole) const;

  std::vector<LowRankPiece> pieces_;
  Parameter a_;
  std::vector<std::unique_ptr<Parameter>> b_;
  std::vector<std::unique_ptr<Parameter>> magnitudes_;
};

}  // namespace quench::nn
