#pragma once
// Scales of tests/reference/make_blocked_scales.py.

#include "core/tensor/tensor.h"
#include "tests/reference_numbers.h"

namespace quench::testing {

inline Tensor blocked_scale_bytes_case(std::int64_t rows, std::int64_t columns) {
  Tensor scales = Tensor::empty({rows, columns}, DType::u8);
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    scales.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(mixed(static_cast<std::uint32_t>(i + 1)) >> 24);
  return scales;
}

}  // namespace quench::testing
