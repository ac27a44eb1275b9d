#pragma once
// Source of each sample of a weighted mixture: stateless, deterministic, O(1).
//
// Blocks have a fixed count per source, permuted per block. Block size: the smallest, up to 65,536, whose integer
// shares equal the weights (0.7 and 0.3: 10), else 65,536 with rounded shares.

#include <cstdint>
#include <span>
#include <vector>

namespace quench {

class Mixture {
 public:
  // Relative, positive, finite. Throws invalid_argument naming the source, also for a share below 1/65,536.
  Mixture(std::span<const double> weights, std::uint64_t seed);

  struct Draw {
    std::size_t source = 0;
    std::uint64_t index = 0;  // earlier samples of this source
  };
  [[nodiscard]] Draw at(std::uint64_t sample) const;
  // Among the first `samples`; cost: at most one block.
  [[nodiscard]] std::uint64_t drawn(std::size_t source, std::uint64_t samples) const;

  [[nodiscard]] std::uint64_t block_size() const noexcept { return starts_.back(); }
  [[nodiscard]] double share(std::size_t source) const {
    return static_cast<double>(starts_[source + 1] - starts_[source]) / static_cast<double>(block_size());
  }

 private:
  std::vector<std::uint64_t> starts_;  // first slots in the unpermuted block, then the block size
  std::uint64_t seed_;
};

}  // namespace quench
