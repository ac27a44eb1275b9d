#include "data/sampling/document_split.h"

#include <algorithm>
#include <set>

#include "data/formats/token_stream.h"
#include "data/sampling/packing.h"
#include "tests/data/sampling/memory_source.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::MemorySource;

// Documents of 1 to 5 tokens, each of the document's number.
std::shared_ptr<const TokenSource> numbered(int first, int count) {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<std::uint8_t> targets;
  for (int i = first; i < first + count; ++i) {
    documents.emplace_back(1 + i % 5, i);
    targets.insert(targets.end(), documents.back().size(), static_cast<std::uint8_t>(i % 2));
  }
  return std::make_shared<MemorySource>(documents, targets);
}

std::vector<std::int32_t> documents_of(const TokenSource& source) {
  std::vector<std::int32_t> numbers;
  for_each_document(source, [&](std::uint64_t begin, std::uint64_t length) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    std::vector<std::uint8_t> targets(ids.size());
    source.read(begin, ids);
    source.read_target_mask(begin, targets);
    EXPECT_EQ(length, 1u + static_cast<std::uint64_t>(ids.front() % 5)) << "a whole document";
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(ids[i], ids.front());
      EXPECT_EQ(targets[i], ids.front() % 2);
    }
    numbers.push_back(ids.front());
  });
  return numbers;
}

struct Parts {
  std::vector<std::int32_t> kept, held_out;
};
Parts parts_of(const DocumentSplit& split) {
  Parts parts;
  for (const auto& [sources, numbers] : {std::pair(&split.kept, &parts.kept), {&split.held_out, &parts.held_out}})
    for (const auto& source : *sources)
      if (source != nullptr) std::ranges::copy(documents_of(*source), std::back_inserter(*numbers));
  return parts;
}

TEST(DocumentSplit, EveryDocumentIsInOnePart) {
  const std::vector<std::shared_ptr<const TokenSource>> sources{numbered(0, 70), numbered(70, 30)};
  for (const auto& [share, expected] : {std::pair(0.1, 10u), {0.101, 11u}, {7.0, 7u}, {1.0, 1u}, {99.0, 99u}}) {
    const DocumentSplit split = split_documents(sources, share, 3);
    EXPECT_EQ(split.records, 100u);
    EXPECT_EQ(split.held_out_records, expected);
    Parts parts = parts_of(split);
    EXPECT_EQ(parts.held_out.size(), expected);
    EXPECT_TRUE(std::ranges::is_sorted(parts.kept) && std::ranges::is_sorted(parts.held_out));
    std::ranges::copy(parts.kept, std::back_inserter(parts.held_out));
    std::ranges::sort(parts.held_out);
    EXPECT_EQ(parts.held_out, testing::iota<std::int32_t>(100));
  }
}

TEST(DocumentSplit, FollowsFromTheSeed) {
  const auto held_out = [](std::uint64_t seed) {
    return parts_of(split_documents({numbered(0, 100)}, 0.2, seed)).held_out;
  };
  EXPECT_EQ(held_out(1), held_out(1));
  EXPECT_NE(held_out(1), held_out(2));
}

TEST(DocumentSplit, BothAnswersOfAPairStayTogether) {
  const Parts parts = parts_of(split_documents({numbered(0, 40)}, 0.25, 5, 2));
  ASSERT_EQ(parts.held_out.size(), 10u);
  for (std::size_t i = 0; i < parts.held_out.size(); i += 2) {
    EXPECT_EQ(parts.held_out[i] % 2, 0);
    EXPECT_EQ(parts.held_out[i + 1], parts.held_out[i] + 1);
  }
}

TEST(DocumentSplit, ASplitThatLeavesNothingIsRefused) {
  for (const double share : {10.0, 11.0, 0.95})
    expect_error(ErrorCode::bad_config, {"of 10 records leaves none to train on"},
                 [&] { (void)split_documents({numbered(0, 10)}, share, 1); });
}

// Rows of a subset know its documents: no label crosses a gap.
TEST(DocumentSplit, ASubsetIsPackedAsAFileOfItsDocuments) {
  const DocumentSplit split = split_documents({numbered(0, 60)}, 0.5, 9);
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<std::uint8_t> targets;
  for (const std::int32_t number : documents_of(*split.kept.front())) {
    documents.emplace_back(1 + number % 5, number);
    targets.insert(targets.end(), documents.back().size(), static_cast<std::uint8_t>(number % 2));
  }
  for (const bool multipack : {false, true}) {
    const PackingOptions options{.seq_len = 8, .multipack = multipack};
    const PackedRows subset(split.kept.front(), options),
        alone(std::make_shared<MemorySource>(documents, targets), options);
    ASSERT_EQ(subset.size(), alone.size());
    for (std::uint64_t row = 0; row < alone.size(); ++row) {
      std::vector<std::int32_t> values[2][3];
      std::vector<SequenceRange> sequences[2];
      for (const auto& [rows, i] : {std::pair(&subset, 0), {&alone, 1}}) {
        for (auto& column : values[i]) column.resize(8);
        (void)rows->read(row, {values[i][0], values[i][1], values[i][2]}, 0, sequences[i]);
      }
      for (int column = 0; column < 3; ++column) EXPECT_EQ(values[0][column], values[1][column]) << row;
      EXPECT_EQ(sequences[0].size(), sequences[1].size());
    }
  }
}

}  // namespace
}  // namespace quench
