#pragma once
// Operands for the tests of autograd.

#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench::testing {

// f32 on the CPU: shift + scale * N(0, 1), of the numbered stream.
inline Tensor randn(const Shape& shape, std::uint64_t stream, float scale = 1.0f, float shift = 0.0f) {
  Tensor t = Tensor::empty(shape, DType::f32);
  float* x = t.data<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i)
    x[i] = shift + scale * random_normal({7, stream, 0}, static_cast<std::uint64_t>(i));
  return t;
}

}  // namespace quench::testing
