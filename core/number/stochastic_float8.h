#pragma once
// Stochastic rounding f32 -> float8, for gradients: unbiased, where rounding to nearest loses what lies below half a
// step of the format at every element alike (Gupta et al., "Deep learning with limited numerical precision", 2015).
//
// A matrix's draws belong to the positions of its elements, row and column, in whatever pieces, orientation or order
// they are cast and however the matrix is padded. As for bf16, one Philox block serves eight elements: columns 8c to
// 8c + 7 of row r take the halves of block (r << 32) + c.

#include "core/number/float8.h"
#include "core/number/stochastic_rounding.h"

namespace quench {

// One of the two codes next to a value: with `random` uniform in [0, 65536) the one away from zero with the probability
// that is the value's distance from the other in their difference, rounded to a multiple of 2^-16. Codes' own values
// never move. Saturation and NaN as in rounding to nearest: what is beyond the largest value, infinities included,
// becomes that value, and NaN keeps its sign. Branch-free.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t stochastic_round_float8(float value,
                                                                                std::uint32_t random) noexcept {
  using Grid = typename Element::Grid;
  constexpr int kDropped = 23 - Element::kMantissaBits;
  constexpr std::uint32_t kLeastBinade = Grid::kMinNormalWord >> 23;
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & kF32MagnitudeMask, exponent = magnitude >> 23;
  // Below the normal numbers all values are counted in the smallest step: their significands move to the right. (The
  // leading bit that an f32 subnormal has not falls out on the way.)
  const std::uint32_t binade = exponent < kLeastBinade ? kLeastBinade : exponent, below = binade - exponent;
  const std::uint32_t significand = ((magnitude & 0x007FFFFFu) | 0x00800000u) >> (below > 31u ? 31u : below);
  // (random + 1/2) / 65536 of a step: the half makes the error of 16 bits even out, and is never enough by itself.
  const std::uint32_t draw = (2 * random + 1) << (kDropped - 17);
  const std::uint32_t rounded =
      ((binade - kLeastBinade) << Element::kMantissaBits) + ((significand + draw) >> kDropped);
  const std::uint32_t code = rounded > Element::kMaxCode ? Element::kMaxCode : rounded;
  return static_cast<std::uint8_t>(Grid::sign_of(word) | (magnitude > kF32Infinity ? Element::kNanCode : code));
}

// The block that serves an element of a matrix; its bits there are rounding_bits(block, column).
[[nodiscard]] QUENCH_HOST_DEVICE constexpr PhiloxBlock matrix_rounding_block(const RandomKey& key, std::uint64_t row,
                                                                             std::uint64_t column) noexcept {
  return random_block(key, row << 32 | column / kRoundingsPerBlock);
}

}  // namespace quench
