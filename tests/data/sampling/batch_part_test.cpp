#include "data/sampling/batch_part.h"

#include <map>
#include <set>

#include "core/ops/loss/cross_entropy.h"
#include "data/sampling/loader.h"
#include "tests/data/sampling/memory_source.h"

namespace quench {
namespace {

using testing::expect_error;

std::vector<std::int32_t> elements_of(const Tensor& tensor) {
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + tensor.numel()};
}

// Ids and labels are numbers of tokens; sequences of these lengths, the rest of the rows is padding.
Batch batch_of(std::int64_t rows, std::int64_t length, const std::vector<std::vector<std::int64_t>>& sequences) {
  Batch batch;
  const std::int64_t count = rows * length;
  std::vector<std::int32_t> ids, labels(static_cast<std::size_t>(count), kIgnoreLabel),
      positions(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t begin = row * length;
    for (const std::int64_t size : sequences[static_cast<std::size_t>(row)]) {
      batch.sequences.push_back({begin, size, begin, size});
      for (std::int64_t i = 0; i < size; ++i) {
        positions[static_cast<std::size_t>(begin + i)] = static_cast<std::int32_t>(i);
        labels[static_cast<std::size_t>(begin + i)] = static_cast<std::int32_t>(begin + i);
      }
      begin += size;
      batch.valid_tokens += size;
    }
  }
  batch.input_ids = Tensor::from_values<std::int32_t>({rows, length}, ids);
  batch.labels = Tensor::from_values<std::int32_t>({rows, length}, labels);
  batch.positions = Tensor::from_values<std::int32_t>({rows, length}, positions);
  return batch;
}

TEST(BatchPart, PartsAreChunksFromBothEnds) {
  const Batch whole = batch_of(2, 8, {{8}, {3, 4}});
  const Batch first = part_of(whole, {0, 2}), second = part_of(whole, {1, 2});
  EXPECT_EQ(first.input_ids.shape(), (Shape{2, 4}));
  EXPECT_EQ(elements_of(first.input_ids), (std::vector<std::int32_t>{0, 1, 6, 7, 8, 9, 14, 15}));
  EXPECT_EQ(elements_of(second.input_ids), (std::vector<std::int32_t>{2, 3, 4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(elements_of(first.positions), (std::vector<std::int32_t>{0, 1, 6, 7, 0, 1, 3, 0}));
  EXPECT_EQ(first.valid_tokens + second.valid_tokens, whole.valid_tokens);
  EXPECT_EQ(first.valid_tokens, 7);  // one row is padding
  EXPECT_EQ(&whole_of(whole), &whole);
  EXPECT_EQ(elements_of(whole_of(first).input_ids), elements_of(whole.input_ids));
}

// Every query sees, in order, the tokens of its sequence up to itself, and every key names its readers.
TEST(BatchPart, QueriesSeeTheKeysOfTheirWholeSequence) {
  Batch whole = batch_of(2, 12, {{5, 1, 6}, {2, 7}});
  whole.prefixes = {{.sequence = 4, .begin = 12, .length = 2}};  // the last sequence continues the one before
  for (const std::int64_t count : {2, 3}) {
    std::vector<std::int32_t> order;  // tokens in the order of all parts
    for (std::int64_t index = 0; index < count; ++index) {
      const Batch part = part_of(whole, {index, count});
      order.insert(order.end(), part.part->tokens.begin(), part.part->tokens.end());
    }
    std::int64_t seen = 0;
    std::set<std::int64_t> pairs_of_query_and_key;
    for (std::int64_t index = 0; index < count; ++index) {
      const Batch part = part_of(whole, {index, count});
      const std::vector<std::int32_t> keys = elements_of(part.part->keys), readers = elements_of(part.part->readers);
      ASSERT_EQ(part.sequences.size(), part.part->sequences.size());
      std::int64_t keys_end = 0;
      for (std::size_t i = 0; i < part.sequences.size(); ++i) {
        const SequenceRange& piece = part.sequences[i];
        const std::size_t source = part.part->sequences[i];
        const SequenceRange& sequence = whole.sequences[source];
        EXPECT_EQ(piece.k_begin, keys_end);
        keys_end += piece.k_length;
        std::vector<std::int32_t> expected;
        if (source == 4) expected = {12, 13};
        for (std::int64_t token = sequence.q_begin; std::ssize(expected) < piece.k_length; ++token)
          expected.push_back(static_cast<std::int32_t>(token));
        std::vector<std::int32_t> tokens;
        for (std::int64_t k = 0; k < piece.k_length; ++k)
          tokens.push_back(order[static_cast<std::size_t>(keys[static_cast<std::size_t>(piece.k_begin + k)])]);
        EXPECT_EQ(tokens, expected);
        // The last query is the last key.
        const std::int64_t last = piece.q_begin + piece.q_length - 1;
        EXPECT_EQ(part.part->tokens[static_cast<std::size_t>(last)], tokens.back());
        seen += piece.q_length;
      }
      EXPECT_EQ(keys_end, std::ssize(keys));
      const std::int64_t most = part.part->readers.size(1);
      std::map<std::int32_t, std::vector<std::int32_t>> by_row;
      for (std::size_t k = 0; k < keys.size(); ++k) by_row[keys[k]].push_back(static_cast<std::int32_t>(k));
      ASSERT_EQ(part.part->readers.size(0), 24);
      for (std::int32_t row = 0; row < 24; ++row) {
        std::vector<std::int32_t> found;
        for (std::int64_t j = 0; j < most; ++j)
          if (const std::int32_t k = readers[static_cast<std::size_t>(row * most + j)]; k >= 0) found.push_back(k);
        EXPECT_EQ(found, by_row[row]);
      }
    }
    EXPECT_EQ(seen, 21);  // without padding
  }
}

TEST(BatchPart, PartsOfOneSequenceHaveEqualWork) {
  const Batch whole = batch_of(1, 48, {{48}});
  for (const std::int64_t count : {2, 3, 4}) {
    std::set<std::int64_t> pairs, keys;
    for (std::int64_t index = 0; index < count; ++index) {
      const Batch part = part_of(whole, {index, count});
      std::int64_t visible = 0;
      for (const SequenceRange& piece : part.sequences)
        visible += piece.q_length * (piece.k_length - piece.q_length) + piece.q_length * (piece.q_length + 1) / 2;
      pairs.insert(visible);
      keys.insert(part.part->keys.numel());
    }
    EXPECT_EQ(pairs.size(), 1u);
    EXPECT_EQ(keys.size(), 1u);
  }
}

TEST(BatchPart, PartsMayBePaddingAlone) {
  const Batch part = part_of(batch_of(1, 8, {{2}}), {1, 2});
  EXPECT_TRUE(part.sequences.empty());
  EXPECT_EQ(part.valid_tokens, 0);
  EXPECT_EQ(elements_of(part.part->keys), std::vector<std::int32_t>{-1});
  EXPECT_EQ(elements_of(part.part->readers), std::vector<std::int32_t>(8, -1));
}

TEST(BatchPart, LengthsThatDoNotDivideAreNamed) {
  expect_error(ErrorCode::invalid_argument, {"rows of 10 tokens are not a multiple of 4"}, [] {
    (void)part_of(batch_of(1, 10, {{10}}), {0, 2});
  });
}

TEST(BatchPart, LoadersGiveTheRanksOfAGroupTheSameRows) {
  const auto source = testing::MemorySource::counting(10 * 8 + 1);
  const auto dataset = std::make_shared<Dataset>(
      std::vector<WeightedRows>{{std::make_shared<PackedRows>(source, PackingOptions{.seq_len = 8}), 1.0}},
      SamplerOptions{.shuffle = false});
  const BatchSplit split{.micro_batch_size = 1, .global_batch_size = 2, .rank = 1, .world_size = 2};
  BatchLoader first(dataset, split, {.part = {0, 2}}), second(dataset, split, {.part = {1, 2}});
  const auto a = first.next(), b = second.next();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(elements_of(a->input_ids), (std::vector<std::int32_t>{8, 9, 14, 15}));
  EXPECT_EQ(elements_of(b->input_ids), (std::vector<std::int32_t>{10, 11, 12, 13}));
  EXPECT_EQ(a->first_sample, b->first_sample);
  EXPECT_EQ(a->valid_tokens, 4);
}

}  // namespace
}  // namespace quench
