#include "core/number/random.h"

#include <algorithm>

#include "core/number/normal.h"

namespace quench {
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
