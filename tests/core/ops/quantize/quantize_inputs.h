#pragma once
// Inputs and comparisons shared by the tests of the quantization ops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/number/random.h"
#include "core/ops/quantize/quantize.h"
#include "tests/core/number/special_floats.h"

namespace quench::testing {

// Normal values over a range of binades.
template <class T = float>
Tensor random_tensor(const Shape& shape, std::uint64_t seed = 1) {
  Tensor x = Tensor::empty(shape, dtype_of<T>);
  T* values = x.data<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto element = static_cast<std::uint64_t>(i);
    const int exponent = static_cast<int>(random_below(RandomKey{seed, 1, 0}, element, 24)) - 12;
    values[i] = T(std::ldexp(random_normal(RandomKey{seed, 0, 0}, element), exponent));
  }
  return x;
}

inline Tensor of(const Shape& shape, const std::vector<float>& values) {
  return Tensor::from_values<float>(shape, values);
}

inline const std::uint8_t* bytes(const Tensor& tensor) {
  return static_cast<const std::uint8_t*>(tensor.raw_data());
}

inline std::vector<int> byte_values(const Tensor& tensor) {
  return {bytes(tensor), bytes(tensor) + tensor.nbytes()};
}

inline Tensor transposed_copy(const Tensor& x) {
  const std::int64_t rows = x.size(-2), columns = x.size(-1), batch = x.numel() / (rows * columns);
  Shape shape = x.shape();
  std::swap(shape[-1], shape[-2]);
  Tensor result = Tensor::empty(shape, DType::f32);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        result.data<float>()[(b * columns + c) * rows + r] = x.data<float>()[(b * rows + r) * columns + c];
  return result;
}

inline void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_EQ(byte_values(a), byte_values(b));
}

inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace quench::testing
