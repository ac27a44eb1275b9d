#include "data/sampling/loader.h"

#include <chrono>
#include <set>
#include <thread>

#include "core/memory/allocator.h"
#include "core/ops/loss/cross_entropy.h"
#include "tests/data/sampling/memory_source.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::MemorySource;

std::shared_ptr<const Dataset> counting_dataset(std::size_t rows, std::int64_t seq_len, bool shuffle = true) {
  const auto source = MemorySource::counting(rows * static_cast<std::size_t>(seq_len) + 1);
  auto packed = std::make_shared<PackedRows>(source, PackingOptions{.seq_len = seq_len});
  return std::make_shared<Dataset>(std::vector<WeightedRows>{{packed, 1.0}},
                                   SamplerOptions{.seed = 3, .shuffle = shuffle});
}

std::vector<std::int32_t> values(const Tensor& tensor) {
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + tensor.numel()};
}

TEST(BatchLoader, BatchesHoldConsecutiveSamples) {
  const auto dataset = counting_dataset(10, 4, false);
  BatchLoader loader(dataset, {.micro_batch_size = 2, .global_batch_size = 4});
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->input_ids.shape(), (Shape{2, 4}));
  EXPECT_EQ(values(batch->input_ids), testing::iota<std::int32_t>(8));
  EXPECT_EQ(values(batch->labels), testing::iota<std::int32_t>(8, 1));
  EXPECT_EQ(values(batch->positions), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  ASSERT_EQ(batch->sequences.size(), 2u);
  EXPECT_EQ(batch->sequences[1].q_begin, 4);
  EXPECT_EQ(batch->sequences[1].k_length, 4);
  EXPECT_EQ(batch->valid_tokens, 8);
  EXPECT_EQ(batch->first_sample, 0u);
  EXPECT_EQ(loader.next()->first_sample, 2u);
  EXPECT_EQ(values(loader.next()->input_ids).front(), 16);
}

TEST(BatchLoader, PositionCountsWholeStepsThatWereHandedOut) {
  const auto dataset = counting_dataset(100, 4);
  BatchLoader loader(dataset, {.micro_batch_size = 2, .global_batch_size = 8, .rank = 1, .world_size = 2},
                     {.first_sample = 16, .prefetch = 5});
  EXPECT_EQ(loader.position(), 16u);
  EXPECT_EQ(loader.next()->first_sample, 20u);                 // rank 1 takes samples 20 to 23 of the step
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the thread runs ahead; the position does not
  EXPECT_EQ(loader.position(), 16u);
  EXPECT_EQ(loader.next()->first_sample, 22u);
  EXPECT_EQ(loader.position(), 24u);
  EXPECT_EQ(loader.next()->first_sample, 28u);
}

// Documents of two tokens, two a row, whose first ids are those of counting_dataset() times two.
std::shared_ptr<const Dataset> multipack_dataset(std::int32_t rows) {
  std::vector<std::vector<std::int32_t>> documents;
  for (std::int32_t d = 0; d < 2 * rows; ++d) documents.push_back({2 * d, 2 * d + 1});
  auto packed = std::make_shared<PackedRows>(std::make_shared<MemorySource>(documents),
                                             PackingOptions{.seq_len = 2, .multipack = true});
  return std::make_shared<Dataset>(std::vector<WeightedRows>{{packed, 1.0}}, SamplerOptions{.seed = 3});
}

// Resuming at any step, with any world size, micro-batch size and prefetch, gives the samples of the uninterrupted run.
void expect_same_rows(const std::shared_ptr<const Dataset>& dataset, std::int32_t ids_a_row) {
  const auto step_rows = [&](std::uint64_t first, std::int64_t world, std::int64_t micro, std::size_t prefetch) {
    std::multiset<std::int32_t> rows;
    for (std::int64_t rank = 0; rank < world; ++rank) {
      const BatchSplit geometry{micro, 12, rank, world};
      BatchLoader loader(dataset, geometry, {.first_sample = first, .prefetch = prefetch});
      for (std::int64_t m = 0; m < geometry.accumulation_steps(); ++m) {
        const auto batch = loader.next();
        for (std::int64_t row = 0; row < micro; ++row)
          rows.insert(values(batch->input_ids)[static_cast<std::size_t>(2 * row)] / ids_a_row);
      }
      EXPECT_EQ(loader.position(), first + 12);
    }
    return rows;
  };
  std::multiset<std::int32_t> all;
  for (std::uint64_t step = 0; step < 37; ++step) {  // 12 epochs of 37 rows
    const auto expected = step_rows(step * 12, 1, 12, 1);
    for (const std::int64_t world : {2, 3, 4}) EXPECT_EQ(step_rows(step * 12, world, 1, 3), expected) << step;
    EXPECT_EQ(step_rows(step * 12, 2, 3, 8), expected);
    all.insert(expected.begin(), expected.end());
  }
  for (std::int32_t row = 0; row < 37; ++row) EXPECT_EQ(all.count(row), 12u) << row;
}

TEST(BatchLoader, ResumeGivesTheSameRowsForEveryWorldSize) {
  expect_same_rows(counting_dataset(37, 2), 2);
  expect_same_rows(multipack_dataset(37), 4);
}

TEST(BatchLoader, EndsWithPaddingSoThatRanksStayInStep) {
  const auto dataset = counting_dataset(10, 4, false);
  std::multiset<std::int32_t> rows;
  for (const std::int64_t rank : {0, 1}) {
    BatchLoader loader(dataset, {.micro_batch_size = 2, .global_batch_size = 8, .rank = rank, .world_size = 2},
                       {.end_sample = 10});
    int batches = 0;
    while (const auto batch = loader.next()) {
      ++batches;
      std::int64_t valid = 0;
      for (std::int64_t row = 0; row < 2; ++row) {
        const auto labels = values(batch->labels);
        const auto inputs = values(batch->input_ids);
        const auto first = static_cast<std::size_t>(4 * row);
        if (labels[first] == kIgnoreLabel) {
          EXPECT_EQ(inputs[first], 0);
          continue;
        }
        rows.insert(inputs[first] / 4);
        valid += 4;
      }
      EXPECT_EQ(batch->valid_tokens, valid);
      EXPECT_EQ(static_cast<std::int64_t>(batch->sequences.size()) * 4, valid);
    }
    EXPECT_EQ(batches, 4);
    EXPECT_EQ(loader.position(), 10u);
    EXPECT_FALSE(loader.next());
  }
  EXPECT_EQ(std::vector<std::int32_t>(rows.begin(), rows.end()), testing::iota<std::int32_t>(10));
}

TEST(BatchLoader, ErrorsOfTheThreadSurfaceAfterTheBatchesBeforeThem) {
  const auto source = MemorySource::counting(401);
  auto packed = std::make_shared<PackedRows>(source, PackingOptions{.seq_len = 4});
  const auto dataset = std::make_shared<Dataset>(std::vector<WeightedRows>{{packed, 1.0}}, SamplerOptions{});
  source->fail_after(3);
  BatchLoader loader(dataset, {.micro_batch_size = 1, .global_batch_size = 1});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next());
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorCode::io, {"sample 3", "row", "failed on request"}, [&] { (void)loader.next(); });
  EXPECT_EQ(loader.position(), 3u);
}

TEST(BatchLoader, CanBeDestroyedWhileTheThreadWaits) {
  const auto dataset = counting_dataset(100, 4);
  for (int i = 0; i < 20; ++i) {
    BatchLoader loader(dataset, {.micro_batch_size = 1, .global_batch_size = 1}, {.prefetch = 1});
    if (i % 2 == 0) (void)loader.next();
  }
}

TEST(BatchLoader, TooLittleDataForOneBatchIsAnError) {
  const auto dataset = counting_dataset(10, 4);
  expect_error(ErrorCode::invalid_argument,
               {"10 rows of 4 tokens", "needs 12", "3 rows x 2 accumulation steps x 2 ranks"},
               [&] { BatchLoader(dataset, {.micro_batch_size = 3, .global_batch_size = 12, .world_size = 2}); });
  expect_error(ErrorCode::invalid_argument, {"not a multiple"},
               [&] { BatchLoader(dataset, {.micro_batch_size = 3, .global_batch_size = 4}); });
  EXPECT_TRUE(BatchLoader(dataset, {.micro_batch_size = 12, .global_batch_size = 12}, {.end_sample = 10}).next());
}

TEST(BatchLoader, BatchesAreCountedAsData) {
  const auto dataset = counting_dataset(10, 1024);
  BatchLoader loader(dataset, {.micro_batch_size = 2, .global_batch_size = 2}, {.prefetch = 1});
  const auto batch = loader.next();
  const MemoryStats stats = Allocator::of(Device{}).stats();
  EXPECT_GE(stats.current_by_category[static_cast<std::size_t>(MemoryCategory::data)], 3 * 2 * 1024 * 4);
}

TEST(BatchLoader, WaitingIsMeasured) {
  const auto dataset = counting_dataset(10, 4);
  BatchLoader loader(dataset, {.micro_batch_size = 1, .global_batch_size = 1});
  for (int i = 0; i < 50; ++i) (void)loader.next();
  EXPECT_GT(loader.wait_seconds(), 0);
  EXPECT_LT(loader.wait_seconds(), 5);
}

}  // namespace
}  // namespace quench
