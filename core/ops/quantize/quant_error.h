#pragma once
// What a float8 cast lost: the health of a run in numbers.

#include <cmath>
#include <limits>

#include "core/device/kernel_slot.h"
#include "core/number/float8.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// Whether rounding x * scale to nearest would go beyond the format's largest value, so that the code is that of a value
// further off. The largest element under a dynamic scale is not: its rounding may put it above that value by an ulp of
// f32, but not by half a step of the format. NaN is not.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bool is_clipped(float scaled) noexcept {
  const std::uint32_t magnitude = bit_cast<std::uint32_t>(scaled) & kF32MagnitudeMask;
  return magnitude <= kF32Infinity && Element::Grid::round(magnitude) > Element::kMaxCode;
}

struct QuantErrorArgs {
  Tensor x;       // [R,C] f32 or bf16, contiguous
  QuantTensor q;  // the codes of x: e4m3 or e5m2, natural orientation, f32 encode scales by tensor, row or column
  Tensor out;     // f64 [5], the fields of QuantError in their order
};

struct QuantError {
  double signal = 0;      // sum of x^2
  double noise = 0;       // sum of (x - code / scale)^2, the difference in f32
  double saturated = 0;   // elements that the cast clipped (is_clipped)
  double underflows = 0;  // elements that are not 0, nor NaN or infinite, with the code of 0
  double most = 0;        // largest |x|; NaN if an element is NaN

  static constexpr int kFields = 5;
  // Waits for the device.
  static QuantError read(const Tensor& out);
  // Signal to quantization noise ratio in decibels; infinite where nothing is lost.
  [[nodiscard]] double sqnr() const noexcept {
    return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
  }
};

extern constinit KernelSlot<QuantErrorArgs> quant_error_slot;

// Leaves the result on the device. Sums are taken in f64 in an order that the shape alone decides. NaN and infinity
// reach signal and noise. Throws invalid_argument naming the tensor that does not fit.
void quant_error(const QuantErrorArgs& args);

}  // namespace quench
