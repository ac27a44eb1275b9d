#pragma once
// Stochastic rounding f32 -> float8 for gradients: unbiased (Gupta et al., 2015).
//
// Draws by row and column, independent of slicing, orientation, order and padding: columns 8c to 8c + 7 of row r take
// the halves of block (r << 32) + c.

#include "core/number/code_scale.h"
#include "core/number/float8.h"
#include "core/number/stochastic_rounding.h"

namespace quench {

// Probability is proportional to proximity, in multiples of 2^-16; `random` uniform in [0, 65536). Exact values are
// unchanged. Saturating, infinities included; NaN keeps its sign.
template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t stochastic_round_float8(float value,
                                                                                std::uint32_t random) noexcept {
  using Grid = typename Element::Grid;
  constexpr int kDropped = 23 - Element::kMantissaBits;
  constexpr std::uint32_t kLeastBinade = Grid::kMinNormalWord >> 23;
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & kF32MagnitudeMask, exponent = magnitude >> 23;
  // Subnormal results: units of the smallest step (f32 subnormals lose the implicit bit).
  const std::uint32_t binade = exponent < kLeastBinade ? kLeastBinade : exponent, below = binade - exponent;
  const std::uint32_t significand = ((magnitude & 0x007FFFFFu) | 0x00800000u) >> (below > 31u ? 31u : below);
  // (random + 1/2) / 65536 of a step: the half centres the error and never rounds up alone.
  const std::uint32_t draw = (2 * random + 1) << (kDropped - 17);
  const std::uint32_t rounded =
      ((binade - kLeastBinade) << Element::kMantissaBits) + ((significand + draw) >> kDropped);
  const std::uint32_t code = rounded > Element::kMaxCode ? Element::kMaxCode : rounded;
  return static_cast<std::uint8_t>(Grid::sign_of(word) | (magnitude > kF32Infinity ? Element::kNanCode : code));
}

template <class Element>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint8_t stochastic_round(float value, std::uint32_t random) noexcept {
  if constexpr (kIsInt8<Element>)
    return Int8Code::encode_stochastic(value, random);
  else
    return stochastic_round_float8<Element>(value, random);
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr PhiloxBlock matrix_rounding_block(const RandomKey& key, std::uint64_t row,
                                                                             std::uint64_t column) noexcept {
  return random_block(key, row << 32 | column / kRoundingsPerBlock);
}

}  // namespace quench
