#pragma once
// Philox (random.h) for several blocks in flight or a shared key.

#include <cstdint>

#include "core/number/random.h"

namespace quench::cuda {

inline std::uint64_t philox_key(std::uint64_t seed, std::uint64_t stream) {
  return mix64(seed) ^ mix64(stream + 0x9E3779B97F4A7C15ull);
}

__device__ inline std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
__device__ inline std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

// Inline mul.wide: nvcc emits two instructions.
__device__ inline void philox_round(std::uint32_t (&c)[4], std::uint32_t key0, std::uint32_t key1) {
  const auto product = [](std::uint32_t a, std::uint32_t b) {
    std::uint64_t wide;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(wide) : "r"(a), "r"(b));
    return wide;
  };
  const std::uint64_t a = product(0xD2511F53u, c[0]), b = product(0xCD9E8D57u, c[2]);
  c[0] = high_word(b) ^ c[1] ^ key0;
  c[1] = low_word(b);
  c[2] = high_word(a) ^ c[3] ^ key1;
  c[3] = low_word(a);
}

__device__ inline void advance_keys(std::uint32_t& key0, std::uint32_t& key1) {
  key0 += 0x9E3779B9u;
  key1 += 0xBB67AE85u;
}

}  // namespace quench::cuda
