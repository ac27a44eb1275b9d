#pragma once
// Block scales of MX and NVFP4.

#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {

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

struct Nvfp4Scale {
  const float* global;  // nullptr: one level
  __device__ BlockScale operator()(float amax) const {
    const Nvfp4BlockScale scale = global != nullptr ? nvfp4_block_scale(amax, *global) : nvfp4_block_scale(amax);
    return {scale.code, scale.multiplier, isnan(scale.multiplier)};
  }
};

// Dequantization factor of a scale code.
struct MxFactor {
  __device__ float operator()(std::uint8_t code) const { return decode_e8m0(code); }
};
struct Nvfp4Factor {
  const float* global;  // nullptr: one level
  __device__ float operator()(std::uint8_t code) const {
    return (global != nullptr ? *global : 1.0f) * E4m3::decode(code);
  }
};

}  // namespace quench::cuda
