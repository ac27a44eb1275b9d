#pragma once
// Scales of MX and NVFP4 blocks in kernels.

#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {

// How a block's scale follows from its largest magnitude, what its elements are multiplied by, and whether the block
// is NaN as a whole.
struct BlockScale {
  std::uint8_t code;
  float multiplier;
  bool is_nan;
};

template <class Element>
struct MxScale {
  MxScaleMode mode;
  __device__ BlockScale operator()(float amax) const {
    const std::uint8_t code = mx_scale<Element>(amax, mode);
    return {code, e8m0_reciprocal(code), code == kE8m0Nan};
  }
};

}  // namespace quench::cuda
