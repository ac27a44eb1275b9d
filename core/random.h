#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
//
// A draw is a pure function of (seed, stream, step, element), so results depend neither on how a tensor is sharded nor
// on thread or tile shape, and a GPU kernel produces the same bits. `stream` names the purpose, usually hash64 of
// the tensor's name; `element` is the global element index.

#include <array>
#include <cstdint>
#include <string_view>

namespace quench {

struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t step = 0;
};

// FNV-1a, 64 bits: stable across builds and machines; used to key streams by name.
[[nodiscard]] constexpr std::uint64_t hash64(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  return h;
}

// One Philox4x32-10 block.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Finaliser of MurmurHash3: spreads every input bit over the word.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// The four 32-bit words that belong to elements 4*block .. 4*block+3.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> random_block(const RandomKey& key, std::uint64_t block) noexcept {
  const std::uint64_t k = mix64(key.seed) ^ mix64(key.stream + 0x9E3779B97F4A7C15ull);
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(key.step), static_cast<std::uint32_t>(key.step >> 32)},
                    {static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32)});
}

// The 32-bit word of one element.
[[nodiscard]] constexpr std::uint32_t random_word(const RandomKey& key, std::uint64_t element) noexcept {
  return random_block(key, element / 4)[element % 4];
}

// Uniform in [0, 1) with 24 bits.
[[nodiscard]] constexpr float to_uniform(std::uint32_t word) noexcept {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

// Standard normal of one element (Box-Muller on the element's pair of words). Host only: uses libm, so the bits are
// those of this machine's libm; initialisation runs on the host on every device for that reason.
[[nodiscard]] float random_normal(const RandomKey& key, std::uint64_t element) noexcept;

// Uniform integer in [0, bound) without modulo bias beyond 2^-32.
[[nodiscard]] constexpr std::uint64_t random_below(const RandomKey& key, std::uint64_t element,
                                                   std::uint64_t bound) noexcept {
  const auto block = random_block(key, element);
  const std::uint64_t word = (std::uint64_t{block[0]} << 32) | block[1];
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

}  // namespace quench
