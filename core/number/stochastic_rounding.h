#pragma once
// Unbiased stochastic rounding f32 -> bf16: updates below half an ulp are not lost (Gupta et al., 2015).
//
// Element e takes half of word e % 8 / 2 of Philox block e / 8, the lower one if even.

#include <cstdint>

#include "core/number/float_types.h"
#include "core/number/random.h"

namespace quench {

inline constexpr std::uint64_t kRoundingsPerBlock = 8;

// Away from zero with probability f / 65536, f the dropped bits; `random` uniform in [0, 65536). Overflow gives
// infinity; NaN stays NaN.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bfloat16 stochastic_round_bf16(float value, std::uint32_t random) noexcept {
  const auto word = bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + random) >> 16;
  const std::uint32_t quiet = (word >> 16) | 0x0040u;
  return bfloat16::from_bits(static_cast<std::uint16_t>((word & kF32MagnitudeMask) > kF32Infinity ? quiet : rounded));
}

[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint32_t rounding_bits(const PhiloxBlock& block,
                                                                       std::uint64_t element) noexcept {
  return block[element % kRoundingsPerBlock / 2] >> (element % 2 * 16) & 0xFFFFu;
}

// `element` of tensor key.stream.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr bfloat16 stochastic_round_bf16(float value, const RandomKey& key,
                                                                          std::uint64_t element) noexcept {
  return stochastic_round_bf16(value, rounding_bits(random_block(key, element / kRoundingsPerBlock), element));
}

}  // namespace quench
