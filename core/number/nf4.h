#pragma once
// NF4 (Dettmers et al., "QLoRA", 2023, appendix E) with bitsandbytes' values.

#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

struct Nf4 {
  static constexpr int kBlockSize = 64;        // per amax
  static constexpr int kScaleBlockSize = 256;  // scales per factor

  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float decode(std::uint8_t code) noexcept {
    constexpr float kValues[16] = {-1.0f,
                                   -0.6961928009986877f,
                                   -0.5250730514526367f,
                                   -0.39491748809814453f,
                                   -0.28444138169288635f,
                                   -0.18477343022823334f,
                                   -0.09105003625154495f,
                                   0.0f,
                                   0.07958029955625534f,
                                   0.16093020141124725f,
                                   0.24611230194568634f,
                                   0.33791524171829224f,
                                   0.44070982933044434f,
                                   0.5626170039176941f,
                                   0.7229568362236023f,
                                   1.0f};
    return kValues[code & 15];
  }

  // Midpoint of codes `code` and `code` + 1.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr float midpoint(std::uint8_t code) noexcept {
    return (decode(code) + decode(static_cast<std::uint8_t>(code + 1))) * 0.5f;
  }
  // Nearest, ties to the lower: the number of midpoints below x; NaN becomes 0.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr std::uint8_t encode(float x) noexcept {
    std::uint8_t code = 0;
    for (std::uint8_t lower = 0; lower < 15; ++lower)
      if (x > midpoint(lower)) ++code;
    return code;
  }
};

}  // namespace quench
