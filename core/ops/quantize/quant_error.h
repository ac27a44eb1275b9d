#pragma once
// Quantization error statistics of float8 and int8, for the health log.

#include <cmath>
#include <limits>

#include "core/device/kernel_slot.h"
#include "core/number/code_scale.h"
#include "core/number/float8.h"
#include "core/tensor/quant_tensor.h"

namespace quench {

// x * encode_factor(scale) saturates. False for the amax under a dynamic scale (at most an f32 ulp above) and for NaN.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bool is_clipped(float scaled) noexcept {
  if constexpr (kIsInt8<Element>) {
    return scaled > Int8Code::kMax + 0.5f || scaled < Int8Code::kMin - 0.5f;
  } else {
    const std::uint32_t magnitude = bit_cast<std::uint32_t>(scaled) & kF32MagnitudeMask;
    return magnitude <= kF32Infinity && Element::Grid::round(magnitude) > Element::kMaxCode;
  }
}

template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bool is_zero(std::uint8_t code) noexcept {
  if constexpr (kIsInt8<Element>)
    return code == 0;
  else
    return (code & Element::Grid::kMagnitudeMask) == 0;
}

struct QuantErrorArgs {
  Tensor x;       // [R,C] f32/bf16, contiguous
  QuantTensor q;  // quantized x: e4m3, e5m2 or int8, natural orientation, f32 scales
  Tensor out;     // f64 [5]: QuantError's fields
};

struct QuantError {
  double signal = 0;      // sum of x^2
  double noise = 0;       // sum of (x - dequantized)^2, differences in f32
  double saturated = 0;   // is_clipped elements
  double underflows = 0;  // finite nonzero elements quantized to 0
  double most = 0;        // amax; NaN if an element is NaN

  static constexpr int kFields = 5;
  // Synchronizes with the device.
  static QuantError read(const Tensor& out);
  // SQNR in dB; infinite without noise.
  [[nodiscard]] double sqnr() const noexcept {
    return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
  }
};

extern constinit KernelSlot<QuantErrorArgs> quant_error_slot;

// On the device; f64 sums, order by shape only. NaN/Inf propagates to signal and noise.
void quant_error(const QuantErrorArgs& args);

}  // namespace quench
