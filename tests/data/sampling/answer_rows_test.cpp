#include "core/ops/loss/cross_entropy.h"
#include "data/sampling/loader.h"
#include "tests/data/sampling/memory_source.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::MemorySource;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kNoLabel = kIgnoreLabel;

// Answers of `prompt` masked tokens; the flag of the first token is the mark.
struct Answer {
  Ids ids;
  std::size_t prompt;
  bool mark;
};

std::shared_ptr<MemorySource> source_of(const std::vector<Answer>& answers) {
  std::vector<Ids> documents;
  std::vector<std::uint8_t> flags;
  for (const Answer& answer : answers) {
    documents.push_back(answer.ids);
    for (std::size_t i = 0; i < answer.ids.size(); ++i)
      flags.push_back(i == 0 ? (answer.mark ? 1 : 0) : (i >= answer.prompt ? 1 : 0));
  }
  return std::make_shared<MemorySource>(documents, flags);
}

struct PairRow {
  Ids inputs, labels, positions;
  std::vector<std::pair<std::int64_t, std::int64_t>> sequences;
  std::vector<AnswerPair> pairs;
  std::vector<SharedPrefix> prefixes;
};

PairRow read_pairs(const PackedRows& rows, std::uint64_t index) {
  const auto seq_len = static_cast<std::size_t>(rows.seq_len());
  PairRow row{Ids(seq_len), Ids(seq_len), Ids(seq_len), {}, {}, {}};
  std::vector<SequenceRange> sequences;
  (void)rows.read(index, {row.inputs, row.labels, row.positions}, 0, sequences, {&row.pairs, &row.prefixes});
  for (const SequenceRange& range : sequences) row.sequences.emplace_back(range.q_begin, range.q_length);
  return row;
}

std::shared_ptr<MemorySource> three_pairs() {
  return source_of({{{1, 2, 3, 4}, 2, true},
                    {{1, 2, 5}, 2, false},
                    {{6, 7, 8}, 1, true},
                    {{6, 9, 10, 11, 12}, 1, false},
                    {{13, 14, 15}, 2, true},
                    {{13, 14, 16}, 2, false}});
}

TEST(PreferenceRows, APairIsARowWithoutPacking) {
  const PackedRows rows(three_pairs(), {.seq_len = 8, .packing = false, .answers = AnswerRecords::pairs});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.item_count(), 3u);
  const PairRow row = read_pairs(rows, 0);
  EXPECT_EQ(row.inputs, (Ids{1, 2, 3, 2, 0, 0, 0, 0}));
  EXPECT_EQ(row.labels, (Ids{kNoLabel, 3, 4, 5, kNoLabel, kNoLabel, kNoLabel, kNoLabel}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 2, 1, 0, 0, 0, 0}));
  EXPECT_THAT(row.sequences, ElementsAre(std::pair(0, 3), std::pair(3, 1)));
  ASSERT_EQ(row.prefixes.size(), 1u);
  EXPECT_EQ(row.prefixes[0].sequence, 1u);
  EXPECT_EQ(row.prefixes[0].begin, 0);
  EXPECT_EQ(row.prefixes[0].length, 1);
  ASSERT_EQ(row.pairs.size(), 1u);
  EXPECT_EQ(row.pairs[0].sequence, 0u);
  EXPECT_EQ(row.pairs[0].item, 0u);
}

TEST(PreferenceRows, PackingKeepsPairsWhole) {
  const PackedRows rows(three_pairs(), {.seq_len = 10, .answers = AnswerRecords::pairs});
  std::vector<std::uint64_t> items;
  for (std::uint64_t r = 0; r < rows.size(); ++r) {
    const PairRow row = read_pairs(rows, r);
    EXPECT_EQ(row.sequences.size(), 2 * row.pairs.size());
    for (std::size_t i = 0; i < row.pairs.size(); ++i) {
      EXPECT_EQ(row.pairs[i].sequence, 2 * i);
      items.push_back(row.pairs[i].item);
    }
    // A second answer continues at the last token of the shared prompt.
    for (const SharedPrefix& prefix : row.prefixes) {
      EXPECT_EQ(prefix.begin, row.sequences[prefix.sequence - 1].first);
      const auto at = [&](std::int64_t i) { return row.inputs[static_cast<std::size_t>(i)]; };
      EXPECT_EQ(at(prefix.begin + prefix.length), at(row.sequences[prefix.sequence].first));
    }
  }
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_THAT(items, ::testing::UnorderedElementsAre(0u, 1u, 2u));
}

TEST(PreferenceRows, AnswersThatMayNotShareKeysAreWholeSequences) {
  const auto up_to_three = [](std::int64_t first, std::int64_t second) { return first <= 3 && second <= 3; };
  const PackedRows rows(three_pairs(),
                        {.seq_len = 8, .packing = false, .answers = AnswerRecords::pairs, .may_share = up_to_three});
  EXPECT_EQ(read_pairs(rows, 0).prefixes.size(), 1u) << "3 and 2 inputs";
  const PairRow row = read_pairs(rows, 1);  // 2 and 4 inputs
  EXPECT_THAT(row.prefixes, ::testing::IsEmpty());
  EXPECT_EQ(row.inputs, (Ids{6, 7, 6, 9, 10, 11, 0, 0}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 0, 1, 2, 3, 0, 0}));
}

// Answers of 7 and 6 inputs are rotated alike; cut to 6 and 5, they are not.
TEST(PreferenceRows, ACutThatChangesTheRotationOfAnAnswerEndsSharing) {
  const auto source = source_of({{{1, 2, 3, 4, 5, 6, 7, 8}, 3, true}, {{1, 2, 3, 9, 10, 11, 12}, 3, false}});
  const PackedRows rows(
      source, {.seq_len = 9,
               .packing = false,
               .long_documents = LongDocuments::truncate,
               .answers = AnswerRecords::pairs,
               .may_share = [](std::int64_t first, std::int64_t second) { return (first > 5) == (second > 5); }});
  const PairRow row = read_pairs(rows, 0);
  EXPECT_THAT(row.prefixes, ::testing::IsEmpty());
  EXPECT_THAT(row.sequences, ElementsAre(std::pair(0, 5), std::pair(5, 4)));
}

TEST(PreferenceRows, LongPairsByPolicy) {
  const auto long_pair = [] {
    return source_of(
        {{{1, 2, 3, 4, 5, 6, 7, 8}, 2, true}, {{1, 2, 9}, 2, false}, {{1, 2, 3}, 2, true}, {{1, 2, 4}, 2, false}});
  };
  expect_error(ErrorCode::bad_config,
               {"1 of 2 pairs are longer than a sequence of 6 tokens", "the longest has 8", "data.on_long"},
               [&] { PackedRows(long_pair(), {.seq_len = 6, .answers = AnswerRecords::pairs}); });
  const PackedRows cut(
      long_pair(),
      {.seq_len = 6, .packing = false, .long_documents = LongDocuments::truncate, .answers = AnswerRecords::pairs});
  EXPECT_EQ(cut.size(), 2u);
  const PairRow row = read_pairs(cut, 0);  // the longer answer alone is cut
  EXPECT_EQ(row.inputs, (Ids{1, 2, 3, 4, 5, 2}));
  EXPECT_EQ(row.labels, (Ids{kNoLabel, 3, 4, 5, 6, 9}));
  EXPECT_EQ(cut.losses().truncated_tokens, 2u);
  const PackedRows dropped(
      long_pair(),
      {.seq_len = 6, .packing = false, .long_documents = LongDocuments::drop, .answers = AnswerRecords::pairs});
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(read_pairs(dropped, 0).pairs[0].item, 1u);  // items count the dropped ones
  EXPECT_EQ(dropped.item_count(), 2u);
}

TEST(PreferenceRows, APairWithoutTargetsBeforeTheCutIsLeftOut) {
  const PackedRows rows(
      source_of({{{1, 2, 3, 4, 5, 6, 7, 8}, 6, true},
                 {{1, 2, 3, 4, 5, 6, 9, 8}, 6, false},
                 {{1, 2}, 1, true},
                 {{1, 3}, 1, false}}),
      {.seq_len = 5, .packing = false, .long_documents = LongDocuments::truncate, .answers = AnswerRecords::pairs});
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.losses().untrained_pairs, 1u);
}

TEST(PreferenceRows, LabelsArePairedWithAnAnswerToAnotherPrompt) {
  const PackedRows rows(source_of({{{1, 2, 3}, 2, true}, {{1, 2, 4}, 2, false}, {{5, 6, 7, 8}, 1, true}}),
                        {.seq_len = 8, .packing = false, .answers = AnswerRecords::labels});
  ASSERT_EQ(rows.size(), 3u);
  const PairRow first = read_pairs(rows, 0);
  EXPECT_EQ(first.inputs, (Ids{1, 2, 2, 6, 7, 0, 0, 0}));  // 6 7 8 answer another prompt
  EXPECT_EQ(first.labels, (Ids{kNoLabel, 3, 6, 7, 8, kNoLabel, kNoLabel, kNoLabel}));
  EXPECT_TRUE(first.pairs[0].desirable);
  const PairRow second = read_pairs(rows, 1);  // the record before has the same prompt
  EXPECT_EQ(second.inputs, (Ids{1, 2, 2, 6, 7, 0, 0, 0}));
  EXPECT_FALSE(second.pairs[0].desirable);
  const PairRow third = read_pairs(rows, 2);
  EXPECT_EQ(third.inputs, (Ids{5, 6, 7, 5, 0, 0, 0, 0}));
  EXPECT_EQ(third.labels, (Ids{6, 7, 8, 4, kNoLabel, kNoLabel, kNoLabel, kNoLabel}));
}

TEST(PreferenceRows, SourcesOfOtherRecordsAreRefused) {
  const PackingOptions pairs{.seq_len = 8, .answers = AnswerRecords::pairs};
  expect_error(ErrorCode::bad_config, {"reads text records of answers"}, [&] {
    PackedRows(std::make_shared<MemorySource>(std::vector<Ids>{{1, 2, 3}}), pairs);
  });
  expect_error(ErrorCode::bad_config, {"document 0 is no chosen answer"}, [&] {
    PackedRows(source_of({{{1, 2}, 1, false}, {{1, 3}, 1, true}}), pairs);
  });
  expect_error(ErrorCode::bad_config, {"document 2 is no chosen answer"}, [&] {
    PackedRows(source_of({{{1, 2}, 1, true}, {{1, 3}, 1, false}, {{1, 3}, 1, true}}), pairs);
  });
  expect_error(ErrorCode::bad_config, {"there is only one record"}, [&] {
    PackedRows(source_of({{{1, 2}, 1, true}}), {.seq_len = 8, .answers = AnswerRecords::labels});
  });
}

TEST(PreferenceRows, BatchesNumberPairsAcrossRowsAndSources) {
  std::vector<WeightedRows> sources;
  for (int i = 0; i < 2; ++i)
    sources.push_back(
        {std::make_shared<PackedRows>(three_pairs(),
                                      PackingOptions{.seq_len = 8, .packing = false, .answers = AnswerRecords::pairs}),
         1.0});
  BatchLoader loader(std::make_shared<Dataset>(sources, SamplerOptions{.shuffle = false}),
                     {.micro_batch_size = 3, .global_batch_size = 3}, {.end_sample = 6, .prefetch = 0});
  std::vector<std::pair<std::size_t, std::uint64_t>> seen;
  while (const std::optional<Batch> batch = loader.next()) {
    ASSERT_EQ(batch->pairs.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(batch->pairs[i].sequence, 2 * i);
      EXPECT_EQ(batch->sequences[2 * i].q_begin, static_cast<std::int64_t>(8 * i));
      seen.emplace_back(batch->pairs[i].source, batch->pairs[i].item);
    }
  }
  std::ranges::sort(seen);
  EXPECT_THAT(seen, ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(0, 2), std::pair(1, 0), std::pair(1, 1),
                                std::pair(1, 2)));
}

}  // namespace
}  // namespace quench
