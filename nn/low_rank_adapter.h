#pragma once
// A low-rank update of a linear layer's weight (LoRA, Hu et al., 2021): W + scale * B A for some of the layer's rows.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/linear_kernel.h"

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
  LowRankAdapter(std::vector<LowRankPiece> pieces, std::int64_t in_features, const ParameterOptions& options);

  // Of a layer: named lora_A.weight and lora_B.<piece>.weight, with PEFT's names for their pieces.
  [[nodiscard]] std::vector<KernelParameter> parameters();
  [[nodiscard]] const std::vector<LowRankPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] const Parameter& a() const noexcept { return a_; }                  // [sum of ranks, in]
  [[nodiscard]] const Parameter& b(std::size_t piece) const { return *b_[piece]; }  // [rows, rank]
  [[nodiscard]] std::int64_t rank() const noexcept { return a_.global_shape[0]; }

  // weight += scale * B A: f32 or bf16 [out,in]. In bf16 the product and the sum are rounded once each, together on
  // the CPU.
  void add_to(const Tensor& weight) const;

 private:
  std::vector<LowRankPiece> pieces_;
  Parameter a_;
  std::vector<std::unique_ptr<Parameter>> b_;
};

}  // namespace quench::nn
