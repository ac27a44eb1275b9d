#pragma once
// Walsh-Hadamard transform of the blocks of a vector, normalized: symmetric, its own inverse, dot products are kept.
// In f32: for h = 1, 2, 4, ... below the block's size elements i and i + h become their sum and difference; then one
// factor. Every kernel takes this order: equal bits.

#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

inline constexpr std::int64_t kLargestHadamardBlock = 256;

// Elements of a block: the largest power of two that divides `dim`, at most kLargestHadamardBlock.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t hadamard_block(std::int64_t dim) noexcept {
  const std::int64_t power = dim & -dim;
  return power < kLargestHadamardBlock ? power : kLargestHadamardBlock;
}

// 1 / sqrt(block).
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float hadamard_factor(std::int64_t block) noexcept {
  float factor = 1.0f;
  for (; block >= 4; block /= 4) factor *= 0.5f;
  return block == 2 ? factor * 0.70710678118654752440f : factor;
}

}  // namespace quench
