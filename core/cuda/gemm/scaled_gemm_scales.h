#pragma once
// Dequantization scales for cuBLASLt: reciprocals of QuantTensor's quantization scales.

#include "core/cuda/gemm/gemm_problem.h"

namespace quench::cuda {

// Stream-ordered memory, freed on destruction.
class DecodeScales {
 public:
  // Reciprocals (IEEE division) for both operands, tensorwise or rowwise by `mode`; a tensorwise scale is broadcast
  // over the rows in rowwise mode.
  DecodeScales(const ScaledGemmArgs& args, GemmScales mode);

  [[nodiscard]] const float* a() const { return values_.data<float>(); }
  [[nodiscard]] const float* b() const { return values_.data<float>() + begin_b_; }

 private:
  Tensor values_;
  std::int64_t begin_b_;
};

}  // namespace quench::cuda
