#include "data/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data/sampling/permutation.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;

TEST(Permutation, IsABijectionForEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    std::vector<bool> seen(size, false);
    const Permutation order(size, size * 31);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t value = order(i);
      ASSERT_LT(value, size);
      EXPECT_FALSE(seen[value]) << size << ": " << value;
      seen[value] = true;
    }
  }
  const Permutation large(100003, 7);
  std::vector<bool> seen(100003, false);
  for (std::uint64_t i = 0; i < 100003; ++i) seen[large(i)] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 100003);
}

TEST(Permutation, LargeSizesStayInRange) {
  for (const std::uint64_t size : {(std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    const Permutation order(size, 3);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      EXPECT_LT(order(i), size);
      seen.insert(order(i));
    }
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_LT(order(size - 1), size);
  }
  expect_error(ErrorCode::invalid_argument, {"index 5"}, [] { (void)Permutation(5, 0)(5); });
  expect_error(ErrorCode::invalid_argument, {"no elements"}, [] { Permutation(0, 0); });
}

// First elements over many keys are uniform: a chi-squared test with 9 degrees of freedom (0.1 % point: 27.9).
TEST(Permutation, IsUniformOverKeys) {
  for (const std::uint64_t place : {0, 9}) {
    std::vector<int> counts(10, 0);
    for (std::uint64_t key = 0; key < 20000; ++key) ++counts[Permutation(10, key)(place)];
    double chi = 0;
    for (const int count : counts) chi += (count - 2000.0) * (count - 2000.0) / 2000.0;
    EXPECT_LT(chi, 27.9) << place;
  }
}

// The order is part of every checkpoint's meaning: it may not change.
TEST(Permutation, OrderIsFixed) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < 10; ++i) order.push_back(Permutation(10, 42)(i));
  EXPECT_EQ(order, (std::vector<std::uint64_t>{9, 6, 3, 7, 8, 1, 2, 0, 4, 5}));
}

TEST(Sampler, EveryRowOnceAnEpochInAnotherOrder) {
  const Sampler sampler({101}, {1.0}, {.seed = 5});
  std::vector<std::vector<std::uint64_t>> epochs(3);
  for (std::uint64_t i = 0; i < 303; ++i) {
    const auto sample = sampler.at(i);
    ASSERT_EQ(sample.epoch, i / 101);
    epochs[sample.epoch].push_back(sample.row);
  }
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<std::uint64_t>(epoch.begin(), epoch.end()).size(), 101u);
    EXPECT_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_DOUBLE_EQ(sampler.epochs(0, 101), 1.0);
  EXPECT_DOUBLE_EQ(sampler.epochs(0, 0), 0.0);
}

TEST(Sampler, SeedDecidesTheOrder) {
  const auto rows = [](std::uint64_t seed) {
    const Sampler sampler({1000}, {1.0}, {.seed = seed});
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < 1000; ++i) order.push_back(sampler.at(i).row);
    return order;
  };
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
}

TEST(Sampler, WithoutShuffleRowsKeepTheirOrder) {
  const Sampler sampler({7}, {1.0}, {.shuffle = false});
  for (std::uint64_t i = 0; i < 21; ++i) EXPECT_EQ(sampler.at(i).row, i % 7);
}

TEST(Sampler, WeightedSourcesAreEachVisitedEvenly) {
  const std::vector<std::uint64_t> counts{50, 10, 200};
  const Sampler sampler(counts, {0.5, 0.2, 0.3}, {.seed = 9});
  EXPECT_EQ(sampler.mixture().block_size(), 10u);
  std::vector<std::map<std::pair<std::uint64_t, std::uint64_t>, int>> seen(3);  // (epoch, row) -> times
  std::vector<std::uint64_t> used(3, 0);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto sample = sampler.at(i);
    ++seen[sample.source][{sample.epoch, sample.row}];
    ++used[sample.source];
    if ((i + 1) % 10 == 0) {
      EXPECT_EQ(used[0], (i + 1) / 2);
      EXPECT_EQ(used[1], (i + 1) / 5);
    }
    for (std::size_t s = 0; s < 3; ++s)
      ASSERT_DOUBLE_EQ(sampler.epochs(s, i + 1), static_cast<double>(used[s]) / static_cast<double>(counts[s]));
  }
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(seen[s].size(), used[s]) << "a row came twice in an epoch of source " << s;
    for (const auto& [place, times] : seen[s]) EXPECT_LT(place.second, counts[s]);
  }
  EXPECT_EQ(used[1], 200u);  // twenty epochs of ten rows
}

TEST(Mixture, UnevenWeightsUseTheLargestBlock) {
  const std::vector<double> weights{1.0, M_PI, 1e-4};
  const Mixture mixture(weights, 1);
  EXPECT_EQ(mixture.block_size(), 65536u);
  const double total = 1 + M_PI + 1e-4;
  std::vector<std::uint64_t> used(3, 0);
  for (std::uint64_t i = 0; i < 65536; ++i) {
    const auto draw = mixture.at(i);
    EXPECT_EQ(draw.index < 65536, true);
    ++used[draw.source];
  }
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_NEAR(static_cast<double>(used[s]) / 65536, weights[s] / total, 1.0 / 65536);
    EXPECT_DOUBLE_EQ(mixture.share(s), static_cast<double>(used[s]) / 65536);
    EXPECT_EQ(mixture.drawn(s, 65536), used[s]);
  }
  // Within a block the sources are mixed, not in runs: the first 2,048 samples are near their share.
  EXPECT_NEAR(static_cast<double>(mixture.drawn(0, 2048)), 2048 / total, 100);
}

TEST(Mixture, BadWeightsAreRefused) {
  const auto refuses = [](std::vector<double> weights, const std::string& part) {
    expect_error(ErrorCode::invalid_argument, {part}, [&] { Mixture(weights, 0); });
  };
  refuses({}, "0 sources");
  refuses({1, 0}, "source 1: weight 0");
  refuses({-1, 2}, "source 0: weight -1");
  refuses({1, std::nan("")}, "source 1: weight nan");
  refuses({1, INFINITY}, "source 1: weight inf");
  refuses({1, 1e-6}, "source 1: weight 1e-06 is less than 1/65536");
  refuses({1e308, 1e308}, "add up to inf");
  expect_error(ErrorCode::invalid_argument, {"source 1 has no rows"}, [] { Sampler({5, 0}, {1, 1}, {}); });
}

// The set of samples of a step is the same for every world size and micro-batch size, and ranks never overlap.
TEST(BatchSplit, AStepsSamplesDoNotDependOnTheSplit) {
  for (const std::int64_t world : {1, 2, 3, 4, 6}) {
    for (const std::int64_t micro : {1, 2, 4}) {
      if (24 % (world * micro) != 0) continue;
      for (std::uint64_t step = 0; step < 3; ++step) {
        std::set<std::uint64_t> samples;
        std::int64_t total = 0;
        for (std::int64_t rank = 0; rank < world; ++rank) {
          const BatchSplit geometry{micro, 24, rank, world};
          geometry.check();
          for (std::int64_t m = 0; m < geometry.accumulation_steps(); ++m)
            for (std::int64_t row = 0; row < micro; ++row, ++total)
              samples.insert(geometry.first_sample(step * 24, m) + static_cast<std::uint64_t>(row));
        }
        EXPECT_EQ(total, 24);
        ASSERT_EQ(samples.size(), 24u);
        EXPECT_EQ(*samples.begin(), step * 24);
        EXPECT_EQ(*samples.rbegin(), step * 24 + 23);
      }
    }
  }
}

TEST(BatchSplit, ImpossibleSplitsAreRefused) {
  expect_error(ErrorCode::invalid_argument, {"10", "4", "1"}, [] { BatchSplit{4, 10, 0, 1}.check(); });
  expect_error(ErrorCode::invalid_argument, {"8", "2", "3"}, [] { BatchSplit{2, 8, 0, 3}.check(); });
  expect_error(ErrorCode::invalid_argument, {"rank 2 of world size 2"}, [] { BatchSplit{1, 2, 2, 2}.check(); });
  expect_error(ErrorCode::invalid_argument, {"micro-batch of 0"}, [] { BatchSplit{0, 2, 0, 1}.check(); });
}

}  // namespace
}  // namespace quench
