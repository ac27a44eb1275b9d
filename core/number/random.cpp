#include "core/number/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quench {
namespace {

struct NormalPair {
  float values[2];
};

// Radius from (0, 1]: the logarithm is finite, |value| < 6.7.
NormalPair box_muller(std::uint32_t radius_word, std::uint32_t angle_word) noexcept {
  const double radius = std::sqrt(-2.0 * std::log((radius_word + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (angle_word * 0x1p-32);
  return {{static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))}};
}

}  // namespace

float random_normal(const RandomKey& key, std::uint64_t element) noexcept {
  const PhiloxBlock block = random_block(key, element / 4);
  const std::uint64_t pair = element % 4 / 2 * 2;
  return box_muller(block[pair], block[pair + 1]).values[element % 2];
}

void fill_random_normal(const RandomKey& key, std::uint64_t first, std::span<float> out) noexcept {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t element = first + done;
    const PhiloxBlock block = random_block(key, element / 4);
    const NormalPair low = box_muller(block[0], block[1]);
    const NormalPair high = box_muller(block[2], block[3]);
    const float values[4] = {low.values[0], low.values[1], high.values[0], high.values[1]};
    const std::size_t skip = element % 4;
    const std::size_t count = std::min(4 - skip, out.size() - done);
    std::copy_n(values + skip, count, out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

}  // namespace quench
