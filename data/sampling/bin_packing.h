#pragma once
// Items of given sizes into bins of one capacity: best-fit decreasing (Johnson, 1974). From the largest item on, each
// goes into the bin with the least room that still holds it, or opens a new one. At most 11/9 of the fewest bins plus
// four; for documents in training sequences, little padding (Ding et al., 2024, https://arxiv.org/abs/2404.10830).

#include <cstdint>
#include <span>
#include <vector>

namespace quench {

struct Bins {
  std::vector<std::uint64_t> items;   // indices, bin after bin, ascending within each
  std::vector<std::uint64_t> starts;  // bin b holds items[starts[b]] .. items[starts[b + 1] - 1]
};

// Equal arguments give equal bins on every machine: items of one size go in their order, bins are numbered by their
// first items. Sizes are in [1, capacity]; throws invalid_argument for others. Time N log N; memory 24 bytes an item
// and 8 a bin.
[[nodiscard]] Bins pack_bins(std::span<const std::uint64_t> sizes, std::uint64_t capacity);

}  // namespace quench
