#pragma once
// Inputs and comparisons for the tests of the casts on the GPU.

#include <cmath>
#include <vector>

#include "tests/core/ops/quantize/quantize_inputs.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {

// The results that a cast is asked for.
enum class Wanted { natural, transposed, both };

// The bytes of a tensor on the GPU, as a CPU tensor of its dtype and shape.
inline Tensor fetch(const Tensor& t) {
  const Tensor result = Tensor::empty(t.shape(), t.dtype());
  const Stream stream = current_stream(t.device());
  backend(DeviceType::cuda).copy(result.raw_data(), Device{}, t.raw_data(), t.device(), t.nbytes(), stream);
  backend(DeviceType::cuda).synchronize(stream);
  return result;
}

// Equal bytes, except that NaNs need not agree in sign and payload: x86 keeps an operand's, the GPU has one NaN.
inline ::testing::AssertionResult equal(const Tensor& gpu, const Tensor& expected) {
  const Tensor actual = fetch(gpu);
  if (actual.shape() != expected.shape() || actual.dtype() != expected.dtype())
    return ::testing::AssertionFailure() << actual.describe() << ", expected " << expected.describe();
  const auto fail = [&](std::int64_t i, double a, double e) {
    return ::testing::AssertionFailure() << "element " << i << " of " << expected.describe() << " is " << a
                                         << ", expected " << e;
  };
  if (expected.dtype() == DType::f32 || expected.dtype() == DType::bf16) {
    for (std::int64_t i = 0; i < expected.numel(); ++i) {
      const double a = get_element(actual, i), e = get_element(expected, i);
      if (!(a == e && std::signbit(a) == std::signbit(e)) && !(std::isnan(a) && std::isnan(e))) return fail(i, a, e);
    }
    return ::testing::AssertionSuccess();
  }
  const bool has_nan = expected.dtype() == DType::f8_e4m3 || expected.dtype() == DType::f8_e5m2;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(expected.nbytes()); ++i) {
    const int a = bytes(actual)[i], e = bytes(expected)[i];
    if (a != e && !(has_nan && (a & 0x7F) == 0x7F && (e & 0x7F) == 0x7F)) return fail(i, a, e);
  }
  return ::testing::AssertionSuccess();
}

// Random values over many binades in a tensor that starts `shift` elements off an aligned address.
inline Tensor input(const Shape& shape, DType dtype, std::int64_t shift, std::uint64_t seed) {
  const Shape whole{shape.numel() + shift};
  const Tensor x = dtype == DType::f32 ? random_tensor<float>(whole, seed) : random_tensor<bfloat16>(whole, seed);
  return x.narrow(0, shift, shape.numel()).view(shape);
}

// Every so many elements a value that is none of the ordinary ones.
inline void spoil(const Tensor& x, std::int64_t every) {
  const std::vector<double> unusual = {INFINITY, 0.0, -0.0, NAN, -INFINITY, 3e38, -3e38, 1e-45, -1e-39, 1e-12};
  for (std::int64_t i = every / 2, k = 0; i < x.numel(); i += every, ++k)
    set_element(x, i, unusual[static_cast<std::size_t>(k) % unusual.size()]);
}

}  // namespace quench::testing
