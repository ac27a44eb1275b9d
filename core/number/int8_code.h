#pragma once
// Symmetric int8 codes with TorchAO's scales of quantized training (quantize_int8_rowwise), branch-free for
// vectorization.

#include <cstdint>

#include "core/number/float_types.h"
#include "core/number/host_device.h"
#include "core/number/minifloat.h"

namespace quench {

struct Int8Code {
  static constexpr int kBits = 8;
  static constexpr float kMax = 127.0f, kMin = -128.0f;

  // To nearest even, saturating; NaN becomes 0.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float value) noexcept {
    // The ulp of 1.5 * 2^23 is 1: the sum's low bits are the integer, in two's complement.
    constexpr float kMagic = 12582912.0f;
    return static_cast<std::uint8_t>(bit_cast<std::uint32_t>(bounded(value) + kMagic));
  }
  // floor(value + u), u = (random + 1/2) / 65536, random in [0, 65536): unbiased; integers are unchanged.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode_stochastic(float value,
                                                                                   std::uint32_t random) noexcept {
    const float sum = bounded(value) + static_cast<float>(2 * random + 1) * 0x1p-17f;
    const auto toward_zero = static_cast<std::int32_t>(sum);
    const std::int32_t below = toward_zero - (static_cast<float>(toward_zero) > sum ? 1 : 0);
    return static_cast<std::uint8_t>(below > 127 ? 127 : below);
  }
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    return static_cast<float>(static_cast<std::int8_t>(code));
  }

 private:
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float bounded(float value) noexcept {
    const float low = value < kMin ? kMin : value;
    const float both = low > kMax ? kMax : low;
    return value == value ? both : 0.0f;
  }
};

// Decode scale amax / 127, rounded to T, the dtype of the quantized values. NaN and infinity are kept.
template <class T>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float int8_scale(float amax) noexcept {
  return static_cast<float>(T(amax / Int8Code::kMax));
}

// Factor of the cast: 1 / max(scale, 1e-12).
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float int8_encode_factor(float scale) noexcept {
  return 1.0f / (scale < 1e-12f ? 1e-12f : scale);
}

}  // namespace quench
