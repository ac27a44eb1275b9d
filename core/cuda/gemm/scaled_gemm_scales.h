#pragma once
// Reciprocals of quantization scales, for cuBLASLt.

#include "core/cuda/gemm/gemm_problem.h"

namespace quench::cuda {

// Stream-ordered memory.
class DecodeScales {
 public:
  // IEEE division, tensorwise or rowwise by `mode`; rowwise broadcasts a tensorwise scale.
  DecodeScales(const ScaledGemmArgs& args, GemmScales mode);

  [[nodiscard]] const float* a() const { return values_.data<float>(); }
  [[nodiscard]] const float* b() const { return values_.data<float>() + begin_b_; }

 private:
  Tensor values_;
  std::int64_t begin_b_;
};

// alpha and beta of a GEMM on the device: both global scales multiplied (f32), and beta.
[[nodiscard]] Tensor global_factors(const BlockScaledGemmArgs& args);

}  // namespace quench::cuda
