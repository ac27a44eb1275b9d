#pragma once
// Which source each sample of a weighted mixture comes from: deterministic, constant time at any index, no state.
//
// Samples are dealt in blocks of a fixed size. Every block holds the same number of samples of each source, in an order
// permuted per block, so proportions are exact over every block and the n-th sample of a source is found directly. The
// block is the smallest, up to 65,536, whose whole-number shares match the weights (0.7 and 0.3: 10); where none does,
// shares are the nearest multiples of 1/65,536.

#include <cstdint>
#include <span>
#include <vector>

namespace quench {

class Mixture {
 public:
  // Weights are relative: positive, finite. Throws invalid_argument naming the source, also for a share below 1/65,536.
  Mixture(std::span<const double> weights, std::uint64_t seed);

  struct Draw {
    std::size_t source = 0;
    std::uint64_t index = 0;  // how many samples of this source come before it
  };
  [[nodiscard]] Draw at(std::uint64_t sample) const;
  // Samples of a source among the first `samples`; costs up to one block of draws.
  [[nodiscard]] std::uint64_t drawn(std::size_t source, std::uint64_t samples) const;

  [[nodiscard]] std::uint64_t block_size() const noexcept { return starts_.back(); }
  [[nodiscard]] double share(std::size_t source) const {
    return static_cast<double>(starts_[source + 1] - starts_[source]) / static_cast<double>(block_size());
  }

 private:
  std::vector<std::uint64_t> starts_;  // first slot of each source in the unpermuted block, then the block size
  std::uint64_t seed_;
};

}  // namespace quench
