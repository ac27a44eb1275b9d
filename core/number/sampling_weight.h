#pragma once
// Integer arithmetic of sampling from logits, the same on every device: sums do not depend on their order.

#include <cmath>
#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

inline constexpr std::uint64_t kUnitWeight = std::uint64_t{1} << 40;

namespace detail {

// Without contraction to an FMA.
[[nodiscard]] QUENCH_HOST_DEVICE inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// x <= 0, to 1 ulp; 0 below 2^-120.
[[nodiscard]] QUENCH_HOST_DEVICE inline float power_of_two(float x) {
  if (!(x > -120.0f)) return 0.0f;
  const float n = rintf(x), r = x - n;
  float p = 0x1.41fbbcp-13f;
  p = fmaf(p, r, 0x1.5f3e54p-10f);
  p = fmaf(p, r, 0x1.3b2d4cp-7f);
  p = fmaf(p, r, 0x1.c6aee8p-5f);
  p = fmaf(p, r, 0x1.ebfbdcp-3f);
  p = fmaf(p, r, 0x1.62e430p-1f);
  p = fmaf(p, r, 1.0f);
  return rounded_product(p, bit_cast<float>(static_cast<std::uint32_t>(static_cast<int>(n) + 127) << 23));
}

}  // namespace detail

// exp of (logit - maximum) in units of 1 / kUnitWeight, rounded down; `scale`: log2(e) / temperature.
[[nodiscard]] QUENCH_HOST_DEVICE inline std::uint64_t sampling_weight(float logit, float maximum, float scale) {
  const float power = detail::power_of_two(detail::rounded_product(logit - maximum, scale));
  return static_cast<std::uint64_t>(detail::rounded_product(power, 0x1p40f));
}

// Order of finite logits: larger ones have larger keys; -0 and 0 have one.
[[nodiscard]] QUENCH_HOST_DEVICE inline std::uint32_t logit_key(float logit) {
  const auto bits = bit_cast<std::uint32_t>(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Logit of a token that was seen before (Keskar et al., 2019, arXiv:1909.05858); finite.
[[nodiscard]] QUENCH_HOST_DEVICE inline float penalized_logit(float logit, float penalty) {
  constexpr float kMost = 3.4028234663852886e38f;
  const float result = logit > 0 ? logit / penalty : detail::rounded_product(logit, penalty);
  return result > kMost ? kMost : result < -kMost ? -kMost : result;
}

// Bit of token i: i % 32 of word i / 32.
[[nodiscard]] QUENCH_HOST_DEVICE inline bool has_bit(const std::int32_t* words, int i) {
  return (static_cast<std::uint32_t>(words[i / 32]) >> i % 32 & 1u) != 0;
}

// Logit that a token which must not be drawn is taken to have: less likely than any finite one of a model.
inline constexpr float kForbiddenLogit = -3.4028234663852886e38f;

// Least weight of at least share * total; share in [0, 1].
[[nodiscard]] QUENCH_HOST_DEVICE inline std::uint64_t weight_share(float share, std::uint64_t total) {
  const double least = ceil(static_cast<double>(share) * static_cast<double>(total));
  const auto weight = static_cast<std::uint64_t>(least);
  return weight > total ? total : weight;
}

// Point of a uniform draw in [0, total): the upper half of the product.
[[nodiscard]] QUENCH_HOST_DEVICE inline std::uint64_t weight_point(std::uint64_t uniform, std::uint64_t total) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(uniform, total);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(uniform) * total >> 64);
#endif
}

}  // namespace quench
