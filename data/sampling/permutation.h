#pragma once
// A pseudo-random permutation of 0 .. size-1 that is evaluated at any index in constant time and memory: a balanced
// Feistel network (Luby and Rackoff, 1988) on the smallest even number of bits that holds the size, walked along its
// cycles until the value is in range (Black and Rogaway, 2002), fewer than four steps on average.

#include <array>
#include <cstdint>

namespace quench {

class Permutation {
 public:
  // size > 0. Equal arguments give equal permutations on every machine.
  Permutation(std::uint64_t size, std::uint64_t key);

  // index < size.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t index) const;

 private:
  [[nodiscard]] std::uint64_t encrypt(std::uint64_t value) const noexcept;

  static constexpr int kRounds = 8;
  std::uint64_t size_;
  int half_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace quench
