#pragma once
// Best-fit-decreasing bin packing (Johnson, 1974): items by decreasing size, each into the fullest bin it fits, else a
// new one. At most 11/9 OPT + 4 bins; packs documents into training sequences (Ding et al., 2024,
// https://arxiv.org/abs/2404.10830).

#include <cstdint>
#include <span>
#include <vector>

namespace quench {

struct Bins {
  std::vector<std::uint64_t> items;   // indices, grouped by bin, ascending within a bin
  std::vector<std::uint64_t> starts;  // bin b: items[starts[b]] .. items[starts[b + 1] - 1]
};

// Deterministic on every machine: equal sizes in index order, bins numbered by their first items. Sizes in [1,
// capacity], else throws invalid_argument. O(N log N) time; 24 bytes per item and 8 per bin.
[[nodiscard]] Bins pack_bins(std::span<const std::uint64_t> sizes, std::uint64_t capacity);

}  // namespace quench
