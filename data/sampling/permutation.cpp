#include "data/sampling/permutation.h"

#include <algorithm>
#include <bit>

#include "core/number/random.h"
#include "core/system/check.h"

namespace quench {

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size) {
  QUENCH_CHECK(size > 0, "permutation of no elements");
  // Smaller networks have too few distinct round functions.
  half_bits_ = std::max(3, static_cast<int>(std::bit_width(size - 1) + 1) / 2);
  for (std::size_t round = 0; round < keys_.size(); ++round)
    keys_[round] = mix64(key + (round + 1) * 0x9E3779B97F4A7C15ull);
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (const std::uint64_t key : keys_) {
    const std::uint64_t next = left ^ (mix64(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  QUENCH_CHECK(index < size_, "index {} of a permutation of {}", index, size_);
  if (size_ == 1) return 0;
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

}  // namespace quench
