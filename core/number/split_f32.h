#pragma once
// f32 as two halves: the bf16 nearest to it (ties to even) and the 16 bits that are missing, a signed difference of bit
// patterns.

#include <cstdint>

#include "core/number/float_types.h"
#include "core/number/minifloat.h"

namespace quench {

// Second half of `x`, whose first half is `rounded`. A tie above an even bf16 would need 17 bits: it becomes the next
// f32 towards zero. 0 for NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int16_t split_low(float x, bfloat16 rounded) noexcept {
  if (x != x) return 0;
  const auto difference =
      static_cast<std::int32_t>(bit_cast<std::uint32_t>(x) - (static_cast<std::uint32_t>(rounded.bits) << 16));
  return static_cast<std::int16_t>(difference < 0x7FFF ? difference : 0x7FFF);
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr float join_f32(bfloat16 rounded, std::int16_t low) noexcept {
  return bit_cast<float>((static_cast<std::uint32_t>(rounded.bits) << 16) +
                         static_cast<std::uint32_t>(static_cast<std::int32_t>(low)));
}

}  // namespace quench
