#pragma once
// Cosines and sines of rope's angles at base 10,000.

#include <cmath>

#include "core/tensor/tensor.h"

namespace quench::testing {

struct Tables {
  Tensor cos, sin;
  Tables(std::int64_t positions, std::int64_t half)
      : cos(Tensor::empty({positions, half}, DType::f32)), sin(Tensor::empty({positions, half}, DType::f32)) {
    for (std::int64_t p = 0; p < positions; ++p)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        cos.data<float>()[p * half + i] = static_cast<float>(std::cos(angle));
        sin.data<float>()[p * half + i] = static_cast<float>(std::sin(angle));
      }
  }
};

}  // namespace quench::testing
