#pragma once
// Pseudo-random permutation of 0 .. size-1, O(1): balanced Feistel network (Luby and Rackoff, 1988) over the smallest
// even number of bits, with cycle walking (Black and Rogaway, 2002), fewer than four steps on average.

#include <array>
#include <cstdint>

namespace quench {

class Permutation {
 public:
  // size > 0. Deterministic on every machine.
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
