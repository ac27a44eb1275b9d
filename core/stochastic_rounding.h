#pragma once
// Stochastic rounding f32 -> bf16, for parameters kept in bf16: unbiased, so that updates smaller than half a bf16 ulp
// are not lost (Gupta et al., "Deep learning with limited numerical precision", 2015).

#include <cstdint>
#include <span>

#include "core/float_types.h"
#include "core/random.h"

namespace quench {

// Rounds away from zero when `random` (uniform in [0, 65536)) is below f, the 16 bits that bf16 drops, else towards
// zero: the probability is exactly f / 65536 and bf16 values never move. Past the largest bf16 "away" is infinity; NaN
// stays NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bfloat16 stochastic_round_bf16(float value, std::uint32_t random) noexcept {
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word >> 16) + (random < (word & 0xFFFFu) ? 1u : 0u);
  const std::uint32_t quiet = (word >> 16) | 0x0040u;
  return bfloat16::from_bits(static_cast<std::uint16_t>((word & kF32MagnitudeMask) > kF32Infinity ? quiet : rounded));
}

// The rounding of element `element` of the tensor that `key.stream` names: depends on nothing else.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bfloat16 stochastic_round_bf16(float value, const RandomKey& key,
                                                                          std::uint64_t element) noexcept {
  return stochastic_round_bf16(value, random_word(key, element) >> 16);
}

// out[i] = stochastic_round_bf16(in[i], key, first + i), whatever range a caller cuts the tensor into, at a quarter of
// the cost. Both spans have the same length, else invalid_argument; they may not overlap.
void stochastic_round_bf16(std::span<const float> in, std::span<bfloat16> out, const RandomKey& key,
                           std::uint64_t first);

}  // namespace quench
