#pragma once
// Scales of NF4 blocks in kernels: dequantization of double-quantized scales.

#include "core/ops/quantize/nf4.h"

namespace quench::cuda {

// Scales of the blocks of an NF4 tensor.
struct Nf4Scales {
  const std::int8_t* scales;
  const float* factors;
  const float* mean;
  explicit Nf4Scales(const Nf4Tensor& x)
      : scales(x.scales.data<std::int8_t>()), factors(x.factors.data<float>()), mean(x.mean.data<float>()) {}
  template <class Index>
  __device__ float operator[](Index block) const {
    return static_cast<float>(scales[block]) / factors[block / Nf4::kScaleBlockSize] + *mean;
  }
};

}  // namespace quench::cuda
