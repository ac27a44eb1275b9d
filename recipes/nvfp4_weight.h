#pragma once
// NVFP4 weights for block-scaled GEMMs (core/ops/block_scaled_gemm.h).

#include <vector>

#include "core/tensor/packed_matrix.h"
#include "core/tensor/quant_tensor.h"

namespace quench::recipes {

// Shares the codes of a packed weight; adds its e4m3 scales, one part for each run of rows under one global scale.
class Nvfp4Weight {
 public:
  Nvfp4Weight() = default;
  // Undefined if a scale is not an e4m3 value times its global scale. Throws invalid_argument unless fits(weight).
  explicit Nvfp4Weight(const PackedMatrix& weight);

  // e2m1 codes in whole blocks of 16 with global scales and without offsets.
  [[nodiscard]] static bool fits(const PackedMatrix& weight);

  [[nodiscard]] bool defined() const noexcept { return !parts_.empty(); }
  [[nodiscard]] const std::vector<QuantTensor>& parts() const noexcept { return parts_; }

  // y [M,N] = x W^T, bf16 or f32; x [M,K] NVFP4 with a global scale.
  void multiply(const QuantTensor& x, const Tensor& y) const;

 private:
  std::vector<QuantTensor> parts_;
};

}  // namespace quench::recipes
