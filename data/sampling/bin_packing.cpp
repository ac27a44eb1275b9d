#include "data/sampling/bin_packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::uint64_t kUnnumbered = ~std::uint64_t{0};

// Bins in order of creation; returns their count.
std::uint64_t choose_bins(std::span<const std::uint64_t> sizes, std::uint64_t capacity,
                          std::vector<std::uint64_t>& bin_of) {
  std::vector<std::uint64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::uint64_t item) { return sizes[item]; });
  std::map<std::uint64_t, std::vector<std::uint64_t>> with_room;
  std::uint64_t bins = 0;
  for (const std::uint64_t item : order) {
    std::uint64_t bin = bins, room = capacity;
    if (const auto best = with_room.lower_bound(sizes[item]); best != with_room.end()) {
      room = best->first;
      bin = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) with_room.erase(best);
    } else {
      ++bins;
    }
    bin_of[item] = bin;
    if (room > sizes[item]) with_room[room - sizes[item]].push_back(bin);
  }
  return bins;
}

}  // namespace

Bins pack_bins(std::span<const std::uint64_t> sizes, std::uint64_t capacity) {
  for (const std::uint64_t size : sizes)
    QUENCH_CHECK(size > 0 && size <= capacity, "an item of size {} for bins of {}", size, capacity);
  std::vector<std::uint64_t> bin_of(sizes.size());
  const std::uint64_t count = choose_bins(sizes, capacity, bin_of);
  std::vector<std::uint64_t> number(count, kUnnumbered);
  Bins bins;
  bins.starts.assign(count + 1, 0);
  std::uint64_t next = 0;
  for (std::uint64_t& bin : bin_of) {
    if (number[bin] == kUnnumbered) number[bin] = next++;
    bin = number[bin];
    ++bins.starts[bin + 1];
  }
  std::partial_sum(bins.starts.begin(), bins.starts.end(), bins.starts.begin());
  bins.items.resize(sizes.size());
  std::vector<std::uint64_t> place(bins.starts.begin(), bins.starts.end() - 1);
  for (std::uint64_t item = 0; item < sizes.size(); ++item) bins.items[place[bin_of[item]]++] = item;
  return bins;
}

}  // namespace quench
