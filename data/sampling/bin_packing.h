#pragma once
// Best-fit-decreasing bin packing (Johnson, 1974): by decreasing size, into the fullest fitting bin, else a new one. At
// most 11/9 OPT + 4 bins. Documents into sequences: Ding et al., 2024 (https://arxiv.org/abs/2404.10830).

#include <cstdint>
#include <span>
#include <vector>

namespace quench {

struct Bins {
  std::vector<std::uint64_t> items;   // by bin, ascending
  std::vector<std::uint64_t> starts;  // bin b: items[starts[b]] .. items[starts[b + 1] - 1]
};

// Deterministic on every machine: equal sizes by index, bins numbered by first items. Sizes in [1, capacity], else
// throws invalid_argument. O(N log N); 24 bytes per item, 8 per bin.
[[nodiscard]] Bins pack_bins(std::span<const std::uint64_t> sizes, std::uint64_t capacity);

}  // namespace quench
