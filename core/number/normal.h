#pragma once
// Standard normal pairs by Box-Muller, bit-identical on host and CUDA device: float64 additions, multiplications,
// divisions and square roots only, without contraction.

#include <cmath>
#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

struct NormalPair {
  float values[2];
};

// ln((word + 1) / 2^32); relative error below 4e-16.
[[nodiscard]] QUENCH_HOST_DEVICE inline double log_of_unit(std::uint32_t word) noexcept {
  const auto bits = bit_cast<std::uint64_t>(static_cast<double>(word) + 1.0);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  auto mantissa = bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  // 2 atanh(s), |s| < 0.1716: eleven terms of the series.
  const double s = (mantissa - 1.0) / (mantissa + 1.0), z = s * s;
  double series = 1.0 / 23.0;
  for (int n = 21; n >= 3; n -= 2) series = series * z + 1.0 / n;
  return (exponent - 32) * 0.6931471805599453 + (2.0 * s + 2.0 * s * (series * z));
}

// Cosine and sine of 2 pi word / 2^32; absolute error below 2e-16.
struct UnitVector {
  double cosine, sine;
};
[[nodiscard]] QUENCH_HOST_DEVICE inline UnitVector unit_vector(std::uint32_t word) noexcept {
  const std::uint32_t quarter = (word + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(word - (quarter << 30));
  const double angle = rest * (6.283185307179586 * 0x1p-32), z = angle * angle;  // at most pi / 4
  double sine = 0, cosine = 0;
  for (int n = 16; n >= 2; n -= 2) {
    cosine = (1.0 + cosine) * (-z / (n * (n - 1)));
    sine = (1.0 + sine) * (-z / (n * (n + 1)));
  }
  cosine += 1.0;
  sine = angle + angle * sine;
  switch (quarter) {
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    case 3: return {sine, -cosine};
    default: return {cosine, sine};
  }
}

// Radius from (0, 1]: the logarithm is finite, |value| < 6.7.
[[nodiscard]] QUENCH_HOST_DEVICE inline NormalPair box_muller(std::uint32_t radius_word,
                                                              std::uint32_t angle_word) noexcept {
  const double radius = std::sqrt(-2.0 * log_of_unit(radius_word));
  const UnitVector direction = unit_vector(angle_word);
  return {{static_cast<float>(radius * direction.cosine), static_cast<float>(radius * direction.sine)}};
}

}  // namespace quench
