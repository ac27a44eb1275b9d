#pragma once
// Counter-based RNG: Philox4x32-10 (Salmon et al., SC'11).
//
// Draws depend on (seed, stream, step, element) only, not on sharding, threads or device. stream: usually hash64 of a
// name; element: global index.

#include <cstdint>
#include <span>
#include <string_view>

#include "core/number/host_device.h"

namespace quench {

// Key of independent draws.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t step = 0;
};

// FNV-1a.
[[nodiscard]] constexpr std::uint64_t hash64(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  return h;
}

// Four words of one Philox call.
struct PhiloxBlock {
  std::uint32_t words[4];
  [[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint32_t operator[](std::uint64_t i) const noexcept {
    return words[i];
  }
  friend constexpr bool operator==(const PhiloxBlock&, const PhiloxBlock&) = default;
};

// Philox4x32-10 of a counter under a 64-bit key.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                                                  std::uint32_t key1) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// MurmurHash3 finalizer.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// Words of elements 4*block .. 4*block+3.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr PhiloxBlock random_block(const RandomKey& key,
                                                                    std::uint64_t block) noexcept {
  const std::uint64_t k = mix64(key.seed) ^ mix64(key.stream + 0x9E3779B97F4A7C15ull);
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(key.step), static_cast<std::uint32_t>(key.step >> 32)},
                    static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32));
}

// Word of one element.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint32_t random_word(const RandomKey& key,
                                                                     std::uint64_t element) noexcept {
  return random_block(key, element / 4)[element % 4];
}

// [0, 1), 24 bits.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float to_uniform(std::uint32_t word) noexcept {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

// Standard normal (normal.h).
[[nodiscard]] float random_normal(const RandomKey& key, std::uint64_t element) noexcept;

// random_normal(key, first + i), at a quarter of the cost.
void fill_random_normal(const RandomKey& key, std::uint64_t first, std::span<float> out) noexcept;

// [0, bound), by 64-bit multiply-shift; bias <= bound / 2^64.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::uint64_t random_below(const RandomKey& key, std::uint64_t element,
                                                                      std::uint64_t bound) noexcept {
  const auto block = random_block(key, element);
  const std::uint64_t word = (std::uint64_t{block[0]} << 32) | block[1];
  __extension__ using Uint128 = unsigned __int128;
  return static_cast<std::uint64_t>((Uint128{word} * bound) >> 64);
}

}  // namespace quench
