#include "data/sampling/open_dataset.h"

#include <atomic>
#include <thread>

#include "data/formats/shard_writer.h"
#include "data/sampling/loader.h"
#include "data/text/tokenize.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::TempDir;
using testing::write_file;

std::size_t entries(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += entry.is_directory() ? 1 : 0;
  return count;
}

class TextCache : public ::testing::Test {
 protected:
  std::vector<std::filesystem::path> shards(const TextCacheOptions& options, const Tokenizer& tokenizer) {
    return tokenize_cached({(folder_ / "*.txt").string()}, tokenizer, options);
  }
  TempDir folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("bytes");
  TextCacheOptions options_{.folder = folder_ / "cache"};
};

TEST_F(TextCache, IsUsedAgainUntilSomethingChanges) {
  write_file(folder_ / "a.txt", "hello");
  int runs = 0;
  options_.progress = [&](const TokenizeProgress&) { ++runs; };
  const auto first = shards(options_, *tokenizer_);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(shards(options_, *tokenizer_), first);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(entries(folder_ / "cache"), 1u);

  // Another name or time changes nothing, other bytes, options or tokenizers do.
  std::filesystem::rename(folder_ / "a.txt", folder_ / "b.txt");
  EXPECT_EQ(shards(options_, *tokenizer_), first);
  write_file(folder_ / "b.txt", "hellO");
  EXPECT_NE(shards(options_, *tokenizer_), first);
  write_file(folder_ / "b.txt", "hello");
  TextCacheOptions other = options_;
  other.encoder.eos = EosPolicy::none;
  EXPECT_NE(shards(other, *tokenizer_), first);
  const auto larger = testing::with_special_tokens(*tokenizer_, {"<|new|>"});
  EXPECT_NE(shards(options_, *larger), first);
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(shards(options_, *tokenizer_), first);
  EXPECT_EQ(runs, 4);
}

TEST_F(TextCache, AnInterruptedEntryIsMadeAgain) {
  write_file(folder_ / "a.txt", "hello");
  const auto first = shards(options_, *tokenizer_);
  const auto entry = first[0].parent_path();
  std::filesystem::remove_all(entry);
  EXPECT_EQ(shards(options_, *tokenizer_), first);
  EXPECT_TRUE(std::filesystem::exists(first[0]));
}

// A lock belongs to an open file, so threads stand for processes here.
TEST_F(TextCache, CallersThatAskAtOnceTokenizeOnce) {
  write_file(folder_ / "a.txt", std::string(200000, 'x'));
  std::atomic<int> runs{0};
  options_.progress = [&](const TokenizeProgress&) { ++runs; };
  std::vector<std::vector<std::filesystem::path>> found(4);
  std::vector<std::thread> callers;
  for (auto& paths : found) callers.emplace_back([&] { paths = shards(options_, *tokenizer_); });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(entries(folder_ / "cache"), 1u);
  for (const auto& paths : found) EXPECT_EQ(paths, found[0]);
  EXPECT_GE(open_token_file(found[0].at(0))->size(), 200000u);
}

class OpenDataset : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [name, first] : {std::pair{"a.bin", 0}, std::pair{"b.bin", 1000}}) {
      ShardWriter writer(folder_ / name, {.vocab_size = 4000, .eos_id = 3});
      writer.append(testing::iota<std::int32_t>(401, first));
      writer.finish();
    }
  }
  [[nodiscard]] DatasetSpec spec() const {
    return {.sources = {{{(folder_ / "a.bin").string()}, 3}, {{(folder_ / "b.bin").string()}, 1}},
            .vocab_size = 4000,
            .packing = {.seq_len = 4},
            .sampler = {.seed = 1},
            .text = {.folder = folder_ / "cache"}};
  }
  TempDir folder_;
};

TEST_F(OpenDataset, MixesSourcesByWeight) {
  const auto dataset = open_dataset(spec());
  EXPECT_EQ(dataset->row_count(), 200u);
  BatchLoader loader(dataset, {.micro_batch_size = 4, .global_batch_size = 4});
  int second = 0;
  for (int i = 0; i < 10; ++i) {
    const auto batch = loader.next();
    for (std::int64_t row = 0; row < 4; ++row) second += batch->input_ids.data<std::int32_t>()[4 * row] >= 1000 ? 1 : 0;
  }
  EXPECT_EQ(second, 10);
  const std::string plan = describe(*dataset);
  EXPECT_THAT(plan, ::testing::HasSubstr("source 0: 401 tokens, 100 rows of 4, 75.00% of the samples"));
  EXPECT_THAT(plan, ::testing::HasSubstr("b.bin: quench, u16, 401 tokens"));
}

// First ids of the rows that an epoch reads, in its order.
std::vector<std::int32_t> epoch_of(const Dataset& dataset) {
  std::vector<std::int32_t> ids(4), labels(4), positions(4), firsts;
  std::vector<SequenceRange> sequences;
  for (std::uint64_t i = 0; i < dataset.row_count(); ++i) {
    (void)dataset.read(i, {ids, labels, positions}, 0, sequences);
    firsts.push_back(ids.front());
  }
  return firsts;
}

TEST_F(OpenDataset, APathListIsOneStreamAsItsPatternIs) {
  ShardWriter writer(folder_ / "c.bin", {.vocab_size = 4000, .eos_id = 3});
  writer.append(testing::iota<std::int32_t>(42, 2000));
  writer.finish();
  DatasetSpec list = spec(), pattern = spec();
  list.sources = {{{(folder_ / "a.bin").string(), (folder_ / "b.bin").string(), (folder_ / "c.bin").string()}}};
  pattern.sources = {{{(folder_ / "*.bin").string()}}};
  const auto dataset = open_dataset(list);
  std::vector<std::int32_t> rows = epoch_of(*dataset);
  EXPECT_EQ(rows, epoch_of(*open_dataset(pattern)));
  std::ranges::sort(rows);
  EXPECT_TRUE(std::ranges::adjacent_find(rows) == rows.end()) << "a row is read twice";
  EXPECT_EQ(rows.size(), 210u);
  const std::string plan = describe(*dataset);
  EXPECT_THAT(plan, ::testing::HasSubstr("a.bin: 401 tokens, 47.51% of the samples"));
  EXPECT_THAT(plan, ::testing::HasSubstr("c.bin: 42 tokens, 4.98% of the samples"));
}

TEST_F(OpenDataset, FewerTokensThanASequenceAreOnePaddedRow) {
  DatasetSpec few = spec();
  few.sources = {{{(folder_ / "a.bin").string()}}};
  few.packing.seq_len = 500;
  const auto dataset = open_dataset(few);
  EXPECT_EQ(dataset->row_count(), 1u);
  std::vector<std::int32_t> ids(500), labels(500), positions(500);
  std::vector<SequenceRange> sequences;
  EXPECT_EQ(dataset->read(0, {ids, labels, positions}, 0, sequences), 400);
  EXPECT_THAT(describe(*dataset), ::testing::HasSubstr("1 rows of 500, 100.00% of the samples; 19.8% padding"));
}

TEST_F(OpenDataset, APathListMayMixTextAndTokensAndNameAFileTwice) {
  write_file(folder_ / "t.txt", std::string(40, 'x'));
  const auto tokenizer = load_tokenizer("bytes");
  DatasetSpec mixed = spec();
  mixed.tokenizer = tokenizer.get();
  mixed.sources = {{{(folder_ / "t.txt").string(), (folder_ / "a.bin").string(), (folder_ / "t.txt").string()}}};
  const auto dataset = open_dataset(mixed);
  EXPECT_EQ(dataset->sources().front().rows->source().size(), 2 * 42u + 401u);
  EXPECT_EQ(dataset->sources().front().parts.at(2).begin, 42u + 401u);
}

TEST_F(OpenDataset, TrainsOnTextDirectly) {
  write_file(folder_ / "a.txt", "The quick brown fox jumps over the lazy dog.");
  const auto tokenizer = load_tokenizer("bytes");
  DatasetSpec text = spec();
  text.sources = {{{(folder_ / "a.txt").string()}, 1}};
  text.vocab_size = 259;
  expect_error(ErrorCode::bad_config, {"a.txt", "tokenizer"}, [&] { (void)open_dataset(text); });
  text.tokenizer = tokenizer.get();
  const auto dataset = open_dataset(text);
  EXPECT_GE(dataset->row_count(), 10u);
  text.sampler.shuffle = false;
  std::vector<std::int32_t> ids(4), labels(4), positions(4);
  std::vector<SequenceRange> sequences;
  EXPECT_EQ(open_dataset(text)->read(1, {ids, labels, positions}, 0, sequences), 4);
  EXPECT_EQ(labels[0], ids[1]);
}

TEST_F(OpenDataset, FormatsAndTokenizersMustFit) {
  DatasetSpec bad = spec();
  write_file(folder_ / "c.txt", "text");
  bad.sources = {{{(folder_ / "{a.bin,c.txt}").string()}, 1}};
  expect_error(ErrorCode::bad_config, {"a.bin", "mixes text and tokens"}, [&] { (void)open_dataset(bad); });
  bad = spec();
  bad.format = "orc";
  expect_error(ErrorCode::bad_config, {"'orc'"}, [&] { (void)open_dataset(bad); });
  bad = spec();
  bad.vocab_size = 100;
  expect_error(ErrorCode::invalid_argument, {"a.bin", "4000", "100"}, [&] { (void)open_dataset(bad); });
  bad = spec();
  bad.sources.clear();
  expect_error(ErrorCode::invalid_argument, {"without sources"}, [&] { (void)open_dataset(bad); });
}

// Marks of answers are the flags of first tokens, which mean nothing elsewhere.
TEST(OpenDatasetRecords, ShardsOfAnswersAndOfOthersAreNotConfused) {
  const TempDir folder;
  const std::unique_ptr<Tokenizer> bytes = load_tokenizer("bytes");
  write_file(folder / "text.jsonl", R"({"prompt": "a", "completion": "b"})");
  write_file(folder / "pairs.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  write_file(folder / "labels.jsonl", R"({"prompt": "a", "completion": "b", "label": true}
{"prompt": "c", "completion": "d", "label": false})");
  using enum AnswerRecords;
  const auto tokenized = [&](const char* name, AnswerRecords records) {
    (void)tokenize_files(*bytes, {.inputs = {(folder / (std::string(name) + ".jsonl")).string()},
                                  .reader = {.answers = records},
                                  .output = folder / name});
  };
  tokenized("text", none);
  tokenized("pairs", pairs);
  tokenized("labels", labels);
  const auto open = [&](const char* name, AnswerRecords records) {
    return open_dataset({.sources = {{{(folder / name).string()}}},
                         .vocab_size = 300,
                         .packing = {.seq_len = 16, .packing = false, .answers = records}});
  };
  for (const auto& [name, records] : {std::pair("text", none), {"pairs", pairs}, {"pairs", labels}, {"labels", labels}})
    EXPECT_GT(open(name, records)->row_count(), 0u) << name;
  for (const auto& [name, records, was, reads] :
       {std::tuple("text", pairs, "tokenized without --preference", "with --preference pairs"),
        {"text", labels, "tokenized without --preference", "with --preference labels"},
        {"pairs", none, "tokenized with --preference pairs", "without --preference"},
        {"labels", pairs, "tokenized with --preference labels", "with --preference pairs"}})
    expect_error(ErrorCode::bad_config, {(folder / name).string(), was, reads}, [&] { (void)open(name, records); });
  // A file of this name by another program says nothing.
  write_file(folder / "text/dataset.json", "[]");
  EXPECT_GT(open("text", none)->row_count(), 0u);
}

}  // namespace
}  // namespace quench
