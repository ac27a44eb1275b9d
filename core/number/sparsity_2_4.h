#pragma once
// 2:4 sparsity: of every four neighbouring elements of a row at most two are not 0, which tensor cores can skip. Which
// ones stay is decided by the bits of magnitudes, so that every device decides alike; NaN counts as the largest.

#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

enum class Sparsity24 : std::uint8_t {
  magnitude,     // the two largest magnitudes of each four, of equal ones those in front
  transposable,  // of each tile of 4 x 4, greedily from the largest magnitude on (of equal ones in row-major order),
                 // what leaves at most two in its row and its column: the transpose is 2:4 as well
};

// One bit an element: it stays.
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

// Of a tile in row-major order.
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
