#include "data/sampling/bin_packing.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using Indices = std::vector<std::uint64_t>;

TEST(BinPacking, EachItemGoesWhereItLeavesTheLeastRoom) {
  // 7 and 6 open bins of 10; 4 fits next to 6 alone; 3 fits next to 7 exactly; 2 opens the third.
  const Bins bins = pack_bins(Indices{2, 6, 3, 7, 4}, 10);
  EXPECT_EQ(bins.items, (Indices{0, 1, 4, 2, 3}));
  EXPECT_EQ(bins.starts, (Indices{0, 1, 3, 5}));
}

TEST(BinPacking, ItemsOfOneSizeKeepTheirOrder) {
  const Bins bins = pack_bins(Indices{5, 5, 5, 5}, 10);
  EXPECT_EQ(bins.items, (Indices{0, 1, 2, 3}));
  EXPECT_EQ(bins.starts, (Indices{0, 2, 4}));
}

TEST(BinPacking, EveryItemOnceInBinsThatHoldThem) {
  std::mt19937 random(5);
  for (const std::uint64_t capacity : {1u, 7u, 100u, 2048u}) {
    Indices sizes(1 + random() % 3000);
    for (auto& size : sizes) size = 1 + random() % capacity;
    const Bins bins = pack_bins(sizes, capacity);
    ASSERT_EQ(bins.starts.back(), sizes.size());
    std::vector<int> seen(sizes.size(), 0);
    std::uint64_t before = 0;
    for (std::size_t b = 0; b + 1 < bins.starts.size(); ++b) {
      std::uint64_t used = 0;
      ASSERT_LT(bins.starts[b], bins.starts[b + 1]);
      for (std::uint64_t i = bins.starts[b]; i < bins.starts[b + 1]; ++i) {
        used += sizes[bins.items[i]];
        ++seen[bins.items[i]];
        EXPECT_TRUE(i == bins.starts[b] || bins.items[i - 1] < bins.items[i]);
      }
      EXPECT_LE(used, capacity);
      EXPECT_TRUE(b == 0 || before < bins.items[bins.starts[b]]);
      before = bins.items[bins.starts[b]];
    }
    EXPECT_EQ(std::ranges::count(seen, 1), static_cast<std::ptrdiff_t>(sizes.size()));
    // What best-fit decreasing promises; the sum is a bound of the fewest.
    const std::uint64_t fewest = (std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) - 1) / capacity + 1;
    if (capacity == 2048) {
      EXPECT_LE(static_cast<double>(bins.starts.size() - 1), 11.0 / 9.0 * static_cast<double>(fewest) + 4);
    }
  }
}

TEST(BinPacking, NothingGivesNoBins) {
  EXPECT_EQ(pack_bins({}, 4).starts, Indices{0});
}

TEST(BinPacking, SizesThatNoBinHoldsAreRefused) {
  expect_error(ErrorCode::invalid_argument, {"size 5 for bins of 4"}, [] { (void)pack_bins(Indices{1, 5}, 4); });
  expect_error(ErrorCode::invalid_argument, {"size 0"}, [] { (void)pack_bins(Indices{0}, 4); });
}

}  // namespace
}  // namespace quench
