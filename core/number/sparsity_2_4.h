#pragma once
// 2:4 sparsity: at most two nonzeros per four neighbours, by magnitude bits on every device; NaN ranks highest.

#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

enum class Sparsity24 : std::uint8_t {
  magnitude,     // two largest of each four, ties to the lower index
  transposable,  // greedy per 4x4 tile (ties in row-major order), two per row and column: the
                 // transpose is 2:4 too
};

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint32_t kept_of_four(const std::uint32_t (&magnitudes)[4]) noexcept {
  std::uint32_t kept = 0;
  for (int i = 0; i < 4; ++i) {
    int larger = 0;
    for (int j = 0; j < 4; ++j)
      larger += magnitudes[j] > magnitudes[i] || (magnitudes[j] == magnitudes[i] && j < i) ? 1 : 0;
    kept |= (larger < 2 ? 1u : 0u) << i;
  }
  return kept;
}

// Bit mask of a row-major tile.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint32_t kept_of_tile(const std::uint32_t (&magnitudes)[16]) noexcept {
  std::uint32_t kept = 0, seen = 0;
  int rows[4] = {}, columns[4] = {};
  for (int step = 0; step < 16; ++step) {
    int next = -1;
    for (int i = 0; i < 16; ++i)
      if ((seen >> i & 1u) == 0 && (next < 0 || magnitudes[i] > magnitudes[next])) next = i;
    seen |= 1u << next;
    if (rows[next / 4] == 2 || columns[next % 4] == 2) continue;
    ++rows[next / 4];
    ++columns[next % 4];
    kept |= 1u << next;
  }
  return kept;
}

}  // namespace quench
