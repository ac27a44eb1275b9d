#include "data/sampling/packing.h"

#include "core/ops/loss/cross_entropy.h"
#include "tests/data/sampling/memory_source.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::MemorySource;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kMasked = kIgnoreLabel;

struct Row {
  Ids inputs, labels, positions;
  std::vector<std::pair<std::int64_t, std::int64_t>> sequences;  // begin, length
  std::int64_t valid = 0;
};

Row read_row(const PackedRows& rows, std::uint64_t index, std::int64_t first_token = 0) {
  const auto seq_len = static_cast<std::size_t>(rows.seq_len());
  Row row{Ids(seq_len, 77), Ids(seq_len, 77), Ids(seq_len, 77), {}, 0};
  std::vector<SequenceRange> sequences;
  row.valid = rows.read(index, {row.inputs, row.labels, row.positions}, first_token, sequences);
  for (const SequenceRange& range : sequences) {
    EXPECT_EQ(range.q_begin, range.k_begin);
    EXPECT_EQ(range.q_length, range.k_length);
    row.sequences.emplace_back(range.q_begin, range.q_length);
  }
  return row;
}

std::shared_ptr<MemorySource> three_documents() {
  return std::make_shared<MemorySource>(std::vector<Ids>{{1, 2, 3}, {4, 5, 6, 7, 8}, {9, 10}});
}

TEST(Packing, CutsTheStreamAndKeepsDocumentsApart) {
  const PackedRows rows(three_documents(), {.seq_len = 4});
  ASSERT_EQ(rows.size(), 2u);
  const Row first = read_row(rows, 0);
  EXPECT_EQ(first.inputs, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(first.labels, (Ids{2, 3, kMasked, 5}));  // nothing is predicted from 3, the end of a document
  EXPECT_EQ(first.positions, (Ids{0, 1, 2, 0}));
  EXPECT_THAT(first.sequences, ::testing::ElementsAre(::testing::Pair(0, 3), ::testing::Pair(3, 1)));
  EXPECT_EQ(first.valid, 3);
  const Row second = read_row(rows, 1, 100);
  EXPECT_EQ(second.inputs, (Ids{5, 6, 7, 8}));
  EXPECT_EQ(second.labels, (Ids{6, 7, 8, kMasked}));  // 9 starts a document
  EXPECT_EQ(second.positions, (Ids{0, 1, 2, 3}));
  EXPECT_THAT(second.sequences, ::testing::ElementsAre(::testing::Pair(100, 4)));
  EXPECT_EQ(rows.losses().tail_tokens, 1u);  // 10
}

TEST(Packing, WithoutDocumentMaskARowIsOneSequence) {
  const PackedRows rows(three_documents(), {.seq_len = 4, .document_mask = false});
  const Row row = read_row(rows, 1);
  EXPECT_EQ(row.labels, (Ids{6, 7, 8, 9}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 2, 3}));
  EXPECT_THAT(row.sequences, ::testing::ElementsAre(::testing::Pair(0, 4)));
  EXPECT_EQ(row.valid, 4);
}

TEST(Packing, TheTailCanMakeAPaddedRow) {
  const PackedRows rows(three_documents(), {.seq_len = 4, .drop_last = false, .pad_id = 50});
  ASSERT_EQ(rows.size(), 3u);
  const Row row = read_row(rows, 2);
  EXPECT_EQ(row.inputs, (Ids{9, 10, 50, 50}));
  EXPECT_EQ(row.labels, (Ids{10, kMasked, kMasked, kMasked}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 0, 0}));
  EXPECT_THAT(row.sequences, ::testing::ElementsAre(::testing::Pair(0, 2)));
  EXPECT_EQ(row.valid, 1);
  EXPECT_EQ(rows.losses().tail_tokens, 0u);
  // 9 tokens: the tail is only the last label's token, which is already a target.
  EXPECT_EQ(PackedRows(MemorySource::counting(9), {.seq_len = 4, .drop_last = false}).size(), 2u);
}

TEST(Packing, EveryTokenButTheFirstOfADocumentIsATargetOnce) {
  std::vector<Ids> documents;
  std::int32_t next = 0;
  for (int d = 0; d < 200; ++d) {
    Ids document(static_cast<std::size_t>(1 + (d * 7) % 23));
    for (auto& id : document) id = next++;
    documents.push_back(document);
  }
  constexpr std::pair<bool, bool> kWays[] = {{true, false}, {true, true}, {false, false}};
  for (const auto& [packing, multipack] : kWays) {
    const PackedRows rows(std::make_shared<MemorySource>(documents),
                          {.seq_len = 8, .packing = packing, .multipack = multipack, .drop_last = false});
    std::vector<int> targets(static_cast<std::size_t>(next), 0);
    for (std::uint64_t r = 0; r < rows.size(); ++r) {
      const Row row = read_row(rows, r);
      std::int64_t covered = 0, valid = 0;
      for (const auto& [begin, length] : row.sequences) {
        EXPECT_EQ(begin, covered);
        covered += length;
        EXPECT_EQ(row.positions[static_cast<std::size_t>(begin)], 0);
      }
      for (std::size_t i = 0; i < 8; ++i) {
        if (row.labels[i] == kMasked) continue;
        EXPECT_EQ(row.labels[i], row.inputs[i] + 1);
        EXPECT_LT(static_cast<std::int64_t>(i), covered);
        ++targets[static_cast<std::size_t>(row.labels[i])];
        ++valid;
      }
      EXPECT_EQ(valid, row.valid);
    }
    std::size_t token = 0;
    for (const Ids& document : documents)
      for (std::size_t i = 0; i < document.size(); ++i, ++token) EXPECT_EQ(targets[token], i == 0 ? 0 : 1) << token;
  }
}

TEST(Packing, MultipackFillsRowsWithWholeDocuments) {
  const auto source = std::make_shared<MemorySource>(
      std::vector<Ids>{{1, 2, 3}, {4, 5, 6, 7}, {8}, {9, 10, 11}, {12, 13, 14, 15, 16, 17, 18, 19}},
      std::vector<std::uint8_t>{1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const PackedRows rows(source, {.seq_len = 7, .multipack = true, .pad_id = 99});
  ASSERT_EQ(rows.size(), 3u);  // sequences of 3, 4, 3 and 7 inputs
  EXPECT_EQ(rows.losses().single_token_documents, 1u);
  EXPECT_EQ(rows.losses().padding, 4u);
  const Row first = read_row(rows, 0, 100);
  EXPECT_EQ(first.inputs, (Ids{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(first.labels, (Ids{2, kMasked, kMasked, 5, 6, 7, kMasked}));
  EXPECT_EQ(first.positions, (Ids{0, 1, 2, 0, 1, 2, 3}));
  EXPECT_THAT(first.sequences, ::testing::ElementsAre(::testing::Pair(100, 3), ::testing::Pair(103, 4)));
  EXPECT_EQ(first.valid, 4);
  const Row second = read_row(rows, 1);
  EXPECT_EQ(second.inputs, (Ids{9, 10, 11, 99, 99, 99, 99}));
  EXPECT_EQ(second.labels, (Ids{10, 11, kMasked, kMasked, kMasked, kMasked, kMasked}));
  EXPECT_EQ(second.positions, (Ids{0, 1, 2, 0, 0, 0, 0}));
  EXPECT_THAT(second.sequences, ::testing::ElementsAre(::testing::Pair(0, 3)));
  EXPECT_EQ(read_row(rows, 2).labels, (Ids{13, 14, 15, 16, 17, 18, 19}));
}

TEST(Packing, MultipackLeavesLittlePadding) {
  std::vector<Ids> documents;
  for (int d = 0; d < 3000; ++d) documents.push_back(Ids(static_cast<std::size_t>(2 + d * 37 % 400), d));
  const auto source = std::make_shared<MemorySource>(documents);
  const PackedRows packed(source, {.seq_len = 512, .multipack = true});
  const PackedRows single(source, {.seq_len = 512, .packing = false});
  EXPECT_LT(packed.losses().padding, packed.size() * 512 / 100);
  EXPECT_GT(single.losses().padding, single.size() * 512 / 2);
}

TEST(Packing, OneDocumentARow) {
  const auto source = std::make_shared<MemorySource>(
      std::vector<Ids>{{1, 2, 3}, {4}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}});
  const PackedRows rows(source, {.seq_len = 4, .packing = false, .pad_id = 99});
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows.losses().single_token_documents, 1u);
  const Row first = read_row(rows, 0);
  EXPECT_EQ(first.inputs, (Ids{1, 2, 3, 99}));
  EXPECT_EQ(first.labels, (Ids{2, 3, kMasked, kMasked}));
  EXPECT_THAT(first.sequences, ::testing::ElementsAre(::testing::Pair(0, 3)));
  EXPECT_EQ(read_row(rows, 1).labels, (Ids{6, 7, 8, 9}));  // seq_len + 1 tokens fit
  EXPECT_EQ(read_row(rows, 2).labels, (Ids{11, 12, 13, 14}));
  EXPECT_EQ(read_row(rows, 3).inputs, (Ids{14, 15, 16, 17}));
  const Row last = read_row(rows, 4);
  EXPECT_EQ(last.inputs, (Ids{18, 19, 20, 99}));
  EXPECT_EQ(last.valid, 2);
}

TEST(Packing, LongDocumentsAreTruncatedOrDroppedAndCounted) {
  const auto source = std::make_shared<MemorySource>(std::vector<Ids>{{1, 2, 3, 4, 5, 6, 7}, {8, 9}});
  const PackedRows cut(source, {.seq_len = 4, .packing = false, .long_documents = LongDocuments::truncate});
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(read_row(cut, 0).labels, (Ids{2, 3, 4, 5}));
  EXPECT_EQ(cut.losses().truncated_documents, 1u);
  EXPECT_EQ(cut.losses().truncated_tokens, 2u);
  const PackedRows dropped(source, {.seq_len = 4, .packing = false, .long_documents = LongDocuments::drop});
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped.losses().dropped_tokens, 7u);
  const PackedRows both(source, {.seq_len = 5, .multipack = true, .long_documents = LongDocuments::truncate});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(read_row(both, 0).labels, (Ids{2, 3, 4, 5, 6}));
  EXPECT_EQ(both.losses().truncated_tokens, 1u);
}

TEST(Packing, ADocumentThatTruncationLeavesWithoutATargetIsLeftOutAndCounted) {
  const std::vector<std::uint8_t> flags{1, 0, 0, 0, 1, 1, 1, 1};
  const auto source = std::make_shared<MemorySource>(std::vector<Ids>{{1, 2, 3, 4, 5, 6}, {7, 8}}, flags);
  const PackedRows cut(source, {.seq_len = 3, .packing = false, .long_documents = LongDocuments::truncate});
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(read_row(cut, 0).inputs, (Ids{7, 8, 0}));
  EXPECT_EQ(cut.losses().untrained_documents, 1u);
  EXPECT_EQ(cut.losses().truncated_documents, 0u);
  // One token more, and there is one.
  EXPECT_EQ(PackedRows(source, {.seq_len = 4, .packing = false, .long_documents = LongDocuments::truncate}).size(), 2u);
}

TEST(Packing, DocumentsAcrossTheIndexersBlocksAreFound) {
  std::vector<Ids> documents;
  for (int d = 0; d < 30000; ++d) documents.push_back(Ids(static_cast<std::size_t>(2 + d % 9), d));
  const PackedRows rows(std::make_shared<MemorySource>(documents), {.seq_len = 16, .packing = false});
  ASSERT_EQ(rows.size(), documents.size());
  for (std::uint64_t d = 0; d < rows.size(); d += 7) {
    const Row row = read_row(rows, d);
    EXPECT_EQ(row.inputs[0], static_cast<std::int32_t>(d));
    EXPECT_EQ(row.valid, static_cast<std::int64_t>(documents[d].size()) - 1);
  }
}

TEST(Packing, TargetFlagsMaskLabels) {
  const std::vector<std::uint8_t> flags{1, 0, 1, 1, 1, 0, 0, 1, 1, 1};
  const auto source = std::make_shared<MemorySource>(std::vector<Ids>{{1, 2, 3}, {4, 5, 6, 7, 8}, {9, 10}}, flags);
  const PackedRows packed(source, {.seq_len = 4});
  EXPECT_EQ(read_row(packed, 0).labels, (Ids{kMasked, 3, kMasked, 5}));
  EXPECT_EQ(read_row(packed, 1).labels, (Ids{kMasked, kMasked, 8, kMasked}));
  const PackedRows single(source, {.seq_len = 6, .packing = false});
  EXPECT_EQ(read_row(single, 1).labels, (Ids{5, kMasked, kMasked, 8, kMasked, kMasked}));
  EXPECT_EQ(read_row(single, 1).valid, 2);
}

TEST(Packing, TooLittleDataIsAnErrorWithTheArithmetic) {
  EXPECT_EQ(PackedRows(MemorySource::counting(7), {.seq_len = 8}).losses().padding, 1u) << "the only row";
  expect_error(ErrorCode::invalid_argument, {"1 tokens, of which none follows another"},
               [] { PackedRows(MemorySource::counting(1), {.seq_len = 8}); });
  EXPECT_EQ(PackedRows(MemorySource::counting(9), {.seq_len = 8}).size(), 1u);
  const auto single = std::make_shared<MemorySource>(std::vector<Ids>{{1}, {2}, {3, 4, 5}});
  expect_error(ErrorCode::invalid_argument, {"5 tokens", "2 have a single token", "1 were dropped"},
               [&] { PackedRows(single, {.seq_len = 1, .packing = false, .long_documents = LongDocuments::drop}); });
  expect_error(ErrorCode::invalid_argument, {"multipack without packing"},
               [&] { PackedRows(single, {.seq_len = 4, .packing = false, .multipack = true}); });
  expect_error(ErrorCode::invalid_argument, {"rows of 0"}, [] { PackedRows(MemorySource::counting(8), {}); });
  const PackedRows rows(MemorySource::counting(9), {.seq_len = 8});
  expect_error(ErrorCode::invalid_argument, {"row 1 of 1"}, [&] { (void)read_row(rows, 1); });
}

}  // namespace
}  // namespace quench
