#pragma once
// Stochastic rounding f32 -> bf16, for parameters kept in bf16: unbiased, so that updates smaller than half a bf16 ulp
// are not lost (Gupta et al., "Deep learning with limited numerical precision", 2015).
//
// bf16 drops 16 bits, so an element needs 16 random ones and one Philox block serves eight elements: element e takes
// half of word e % 8 / 2 of block e / 8, the lower half if e is even, the upper half if it is odd.

#include <cstdint>
#include <span>

#include "core/number/float_types.h"
#include "core/number/random.h"

namespace quench {

// The elements that one random_block serves.
inline constexpr std::uint64_t kRoundingsPerBlock = 8;

// Adds `random` (uniform in [0, 65536)) below the bits that bf16 keeps, and drops what is below them: away from zero
// where random + f, f being the 16 bits that bf16 drops, reaches 65536, else towards zero. The probability is exactly
// f / 65536 and bf16 values never move. Past the largest bf16 "away" is infinity; NaN stays NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bfloat16 stochastic_round_bf16(float value, std::uint32_t random) noexcept {
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + random) >> 16;
  const std::uint32_t quiet = (word >> 16) | 0x0040u;
  return bfloat16::from_bits(static_cast<std::uint16_t>((word & kF32MagnitudeMask) > kF32Infinity ? quiet : rounded));
}

// The random bits of element `element`, given the block that serves it.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint32_t rounding_bits(const PhiloxBlock& block,
                                                                       std::uint64_t element) noexcept {
  return block[element % kRoundingsPerBlock / 2] >> (element % 2 * 16) & 0xFFFFu;
}

// The rounding of element `element` of the tensor that `key.stream` names: depends on nothing else.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bfloat16 stochastic_round_bf16(float value, const RandomKey& key,
                                                                          std::uint64_t element) noexcept {
  return stochastic_round_bf16(value, rounding_bits(random_block(key, element / kRoundingsPerBlock), element));
}

// out[i] = stochastic_round_bf16(in[i], key, first + i), whatever range a caller cuts the tensor into, at an eighth of
// the cost. Both spans have the same length, else invalid_argument; they may not overlap.
void stochastic_round_bf16(std::span<const float> in, std::span<bfloat16> out, const RandomKey& key,
                           std::uint64_t first);

}  // namespace quench
