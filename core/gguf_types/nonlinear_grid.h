#pragma once
// Grid of ggml's IQ4 types: sixteen fixed values, denser around 0.

#include <utility>

#include "core/gguf_types/group_team.h"

namespace quench {

struct NonlinearGrid {
  static constexpr int kCount = 16;
  // Ascending; `code` is a constant in device code.
  [[nodiscard]] static QUENCH_HOST_DEVICE constexpr int value(int code) noexcept {
    constexpr int kValues[kCount] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return kValues[code];
  }
  static constexpr float kLow = -127, kHigh = 113;

  // Sum of the steps that are passed, without branches.
  [[nodiscard]] static QUENCH_TEAM_INLINE float nearest(float ratio) noexcept {
    return nearest(ratio, std::make_integer_sequence<int, kCount - 1>());
  }
  // Code of nearest(ratio).
  [[nodiscard]] static QUENCH_TEAM_INLINE std::uint8_t code(float ratio) noexcept {
    return code(ratio, std::make_integer_sequence<int, kCount - 1>());
  }

 private:
  template <int... I>
  [[nodiscard]] static QUENCH_TEAM_INLINE std::uint8_t code(float ratio, std::integer_sequence<int, I...>) noexcept {
    return static_cast<std::uint8_t>((... + (ratio > kMiddle<I> ? 1 : 0)));
  }
  template <int... I>
  [[nodiscard]] static QUENCH_TEAM_INLINE float nearest(float ratio, std::integer_sequence<int, I...>) noexcept {
    return kLow + (... + (ratio > kMiddle<I> ? kStep<I> : 0.0f));
  }
  template <int I>
  static constexpr float kMiddle = static_cast<float>(value(I) + value(I + 1)) / 2.0f;
  template <int I>
  static constexpr float kStep = static_cast<float>(value(I + 1) - value(I));
};

}  // namespace quench
