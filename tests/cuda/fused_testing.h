#pragma once
// Operands of every layout for the tests of fused kernels, and what their outputs are checked for.

#include "tests/cuda/cuda_testing.h"

namespace quench::testing {

// Rows without gaps; rows apart in a larger matrix, still aligned to 16 bytes; rows that start anywhere.
enum class Layout { contiguous, fused, unaligned };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::fused, Layout::unaligned};

inline Tensor with_layout(const Shape& shape, DType dtype, Layout layout) {
  if (layout == Layout::contiguous) return Tensor::empty(shape, dtype);
  if (layout == Layout::unaligned) return Generator::empty_view(shape, dtype, 3);
  Shape whole = shape;
  const int axis = shape.rank() == 3 ? 1 : shape.rank() - 1;  // heads, or columns, of the larger matrix
  const std::int64_t around = axis == 1 && shape.rank() == 3 ? 2 : 16;
  whole[axis] += around;
  return Tensor::empty(whole, dtype).narrow(axis, around / 2, shape[axis]);
}

// Random values on the CPU.
inline Tensor normal(Generator& random, const Shape& shape, DType dtype, Layout layout, double scale = 1.0) {
  const Tensor t = with_layout(shape, dtype, layout);
  random.fill_normal(t, scale);
  return t;
}

// An output on the GPU, it and what lies around it NaN.
inline Tensor poisoned(const Shape& shape, DType dtype, Layout layout = Layout::contiguous) {
  const Tensor t = with_layout(shape, dtype, layout);
  const auto elements = static_cast<std::int64_t>(t.storage()->nbytes()) / byte_size(dtype);
  fill(Tensor::from_host(t.storage()->data(), {elements}, dtype), std::nan(""));
  return on_gpu(t);
}

// True if the elements of a poisoned output have been written and nothing around them.
inline bool wrote_all_and_only(const Tensor& output) {
  const Tensor t = on_cpu(output);
  const auto elements = static_cast<std::int64_t>(t.storage()->nbytes()) / byte_size(t.dtype());
  std::int64_t written = 0;
  for (const double value : values(Tensor::from_host(t.storage()->data(), {elements}, t.dtype())))
    written += std::isnan(value) ? 0 : 1;
  for (const double value : values(t))
    if (std::isnan(value)) return false;
  return written == t.numel();
}

// A GPU tensor against the CPU kernel's.
inline ::testing::AssertionResult matches(const Tensor& actual, const Tensor& expected, double relative,
                                          double absolute) {
  return close(on_cpu(actual), values(expected), relative, absolute);
}

// One step of a dtype: what two roundings of nearly equal values may differ by.
inline double one_step(DType dtype) {
  return 2.02 * rounding(dtype);
}

}  // namespace quench::testing
