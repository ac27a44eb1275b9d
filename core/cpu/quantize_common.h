#pragma once
// Shared by the quantization kernels: loops over magnitudes, the batch-of-matrices view, and type dispatch. Internal to
// each kernel file, which is compiled once per instruction set: hence the unnamed namespace.

#include <algorithm>
#include <cstdint>

#include "core/ops/quantize.h"

namespace quench {
namespace {

// Elements of work below which waking other threads costs more than it saves.
constexpr std::int64_t kParallelElements = 16 * 1024;

// [.., R, C] as `batch` matrices; a vector is one row.
struct MatrixBatch {
  std::int64_t batch = 1, rows = 1, columns = 1;
  explicit MatrixBatch(const Shape& shape) {
    for (int i = 0; i + 2 < shape.rank(); ++i) batch *= shape[i];
    if (shape.rank() >= 2) rows = shape[-2];
    if (shape.rank() >= 1) columns = shape[-1];
  }
  [[nodiscard]] std::int64_t numel() const noexcept { return batch * rows * columns; }
};

// Magnitudes are compared as integers: the order is that of the values, with every NaN above infinity.
inline std::uint16_t magnitude(bfloat16 x) noexcept {
  return x.bits & 0x7FFFu;
}
inline std::uint32_t magnitude(float x) noexcept {
  return bit_cast<std::uint32_t>(x) & kF32MagnitudeMask;
}
inline float magnitude_value(std::uint16_t word) noexcept {
  return bfloat16::from_bits(word);
}
inline float magnitude_value(std::uint32_t word) noexcept {
  return bit_cast<float>(word);
}

template <class T>
using Magnitude = decltype(magnitude(T{}));

template <class T>
inline Magnitude<T> max_magnitude(const T* x, std::int64_t count) noexcept {
  Magnitude<T> most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, magnitude(x[i]));
  return most;
}

// Calls body.template operator()<T, Element>() for x's dtype (f32, bf16) and an element format among Elements.
template <class... Elements, class Body>
void dispatch_quantize(std::string_view op, DType dtype, ElementFormat element, const Body& body) {
  dispatch<float, bfloat16>(dtype, op, [&]<class T>() {
    dispatch_element<Elements...>(element, op, [&]<class Element>() { body.template operator()<T, Element>(); });
  });
}

}  // namespace
}  // namespace quench
