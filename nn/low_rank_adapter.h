#pragma once
// A low-rank update of a linear layer's weight (LoRA, Hu et al., 2021): W + scale * B A for some of the layer's rows.
// With magnitudes (DoRA, Liu et al., 2024) each of these rows is a direction, and has a trained length m: m * (W +
// scale * B A) / |W + scale * B A|, where the norm counts as a constant for gradients, as in PEFT.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/linear_kernel.h"
#include "nn/whole_rows.h"

namespace quench::nn {

// Of the rows of one Hugging Face layer within a fused one.
struct LowRankPiece {
  std::string layer;           // "q_proj"
  std::int64_t row_begin = 0;  // rows of the weight
  std::int64_t rows = 0;
  std::int64_t rank_begin = 0;  // rows of A
  std::int64_t rank = 0;
  float scale = 1.0f;
};

// A of all pieces is one matrix, so that the layer's input meets it in one product; each piece has its B.
class LowRankAdapter {
 public:
  // `pieces` without rank_begin, in the order of their rows. A is uniform with PyTorch's bound for linear layers,
  // 1 / sqrt(in), B is 0: the update begins as nothing.
  // Magnitudes have no values before set_magnitudes().
  LowRankAdapter(std::vector<LowRankPiece> pieces, std::int64_t in_features, const ParameterOptions& options,
                 bool magnitudes = false);

  // Of a layer: named lora_A.weight, lora_B.<piece>.weight and lora_magnitude.<piece>, with PEFT's names for their
  // pieces: A, then B of each piece, then the magnitudes of each.
  [[nodiscard]] std::vector<KernelParameter> parameters();
  [[nodiscard]] const std::vector<LowRankPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] const Parameter& a() const noexcept { return a_; }                  // [sum of ranks, in]
  [[nodiscard]] const Parameter& b(std::size_t piece) const { return *b_[piece]; }  // [rows, rank]
  [[nodiscard]] std::int64_t rank() const noexcept { return a_.global_shape[0]; }
  [[nodiscard]] bool has_magnitudes() const noexcept { return !magnitudes_.empty(); }
  [[nodiscard]] const Parameter& magnitude(std::size_t piece) const { return *magnitudes_[piece]; }  // [rows]

  // weight += scale * B A: f32 or bf16 [out,in]. In bf16 the product and the sum are rounded once each, together on
  // the CPU. `whole` brings A, B and magnitudes.
  void add_to(const Tensor& weight, const WholeRows& whole = {}) const;
  // weight + scale * B A in a tensor of its own: the same bits, without a copy of the weight on the way.
  [[nodiscard]] Tensor added_to(const Tensor& weight) const;
  // The same, and the rows get their magnitudes: what merging leaves.
  void merge_into(const Tensor& weight, const WholeRows& whole = {}) const;
  // The norms of the rows of weight + scale * B A: f32 [out].
  [[nodiscard]] Tensor norms(const Tensor& weight) const;
  // Magnitudes become these norms, so that the update begins as nothing.
  void set_magnitudes(const Tensor& weight);

 private:
  // sum = weight + scale * B A; sum may be weight.
  void add(const Tensor& weight, const Tensor& sum, const WholeRows& whole) const;

  std::vector<LowRankPiece> pieces_;
  Parameter a_;
  std::vector<std::unique_ptr<Parameter>> b_;
  std::vector<std::unique_ptr<Parameter>> magnitudes_;
};

}  // namespace quench::nn
