#pragma once
// Scales of float8 operands as cuBLASLt wants them: multipliers of codes, while a QuantTensor holds multipliers of
// values.

#include "core/cuda/gemm/gemm_problem.h"

namespace quench::cuda {

// Lives on the stream until it is destroyed.
class DecodeScales {
 public:
  // Reciprocals of the scales of both operands, one or one a row as `mode` says: among rows an operand's only scale is
  // repeated. IEEE division.
  DecodeScales(const ScaledGemmArgs& args, GemmScales mode);

  [[nodiscard]] const float* a() const { return values_.data<float>(); }
  [[nodiscard]] const float* b() const { return values_.data<float>() + begin_b_; }

 private:
  Tensor values_;
  std::int64_t begin_b_;
};

}  // namespace quench::cuda
