#include "data/formats/token_stream.h"

#include "data/formats/shard_writer.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::llmc_bytes;
using testing::TempDir;
using testing::write_file;

void write_shard(const std::filesystem::path& path, const std::vector<std::vector<std::int32_t>>& documents,
                 const std::string& fingerprint = "f") {
  ShardWriter writer(path, {.vocab_size = 1000, .tokenizer_fingerprint = fingerprint});
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

TEST(TokenStream, ConcatenatesFilesOfDifferentFormats) {
  TempDir folder;
  write_shard(folder / "train-0.bin", {{1, 2}, {3, 4, 5}});
  write_file(folder / "train-1.bin", llmc_bytes(std::vector<std::uint16_t>{6, 9, 7}));
  write_shard(folder / "train-2.bin", {{8}});
  const auto stream = TokenStream::open({(folder / "train-*.bin").string()}, {.vocab_size = 1000, .eos_id = 9});
  EXPECT_EQ(stream->file_count(), 3u);
  EXPECT_EQ(testing::read_all_tokens(*stream), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 9, 7, 8}));
  EXPECT_EQ(testing::all_document_starts(*stream), (std::vector<std::uint64_t>{0, 2, 5, 7, 8}));
  for (std::uint64_t begin = 0; begin < 9; ++begin) {
    for (std::size_t count = 1; begin + count <= 9; ++count) {
      const auto tokens = testing::read_tokens(*stream, begin, count);
      std::vector<std::uint64_t> starts, expected;
      stream->find_document_starts(begin, tokens, starts);
      for (const std::uint64_t start : std::vector<std::uint64_t>{2, 5, 7, 8})
        if (start > begin && start < begin + count) expected.push_back(start);
      EXPECT_EQ(starts, expected) << begin << " + " << count;
    }
  }
  expect_error(ErrorCode::invalid_argument, {"the stream has 9"}, [&] { (void)testing::read_tokens(*stream, 5, 5); });
}

TEST(TokenStream, PatternsAreSortedAndChecked) {
  TempDir folder;
  for (const char* name : {"b.bin", "a.bin", "c.bin"}) write_shard(folder / name, {{1, 2}});
  const auto paths = expand_file_patterns({(folder / "c.bin").string(), (folder / "[ab].bin").string()});
  ASSERT_EQ(paths.size(), 3u);
  EXPECT_EQ(paths[0].filename(), "c.bin");
  EXPECT_EQ(paths[1].filename(), "a.bin");
  EXPECT_EQ(paths[2].filename(), "b.bin");
  expect_error(ErrorCode::not_found, {"*.none"}, [&] { (void)expand_file_patterns({(folder / "*.none").string()}); });
  expect_error(ErrorCode::bad_config, {"a.bin", "twice"}, [&] {
    (void)expand_file_patterns({(folder / "a.bin").string(), (folder / "*.bin").string()});
  });
  expect_error(ErrorCode::bad_config, {"empty"}, [] { (void)expand_file_patterns({}); });
  expect_error(ErrorCode::bad_config, {"is a folder", "/*.bin"},
               [&] { (void)expand_file_patterns({folder.path().string()}); });
}

TEST(TokenStream, FilesOfDifferentTokenizersAreRefused) {
  TempDir folder;
  write_shard(folder / "a.bin", {{1}}, "one");
  write_shard(folder / "b.bin", {{1}}, "two");
  expect_error(ErrorCode::invalid_argument, {"one", "two", "a.bin", "b.bin"},
               [&] { (void)TokenStream::open({(folder / "*.bin").string()}); });
}

TEST(TokenStream, FilesWithoutAMaskCountAsAllTargets) {
  TempDir folder;
  write_shard(folder / "a.bin", {{1, 2}});
  ShardWriter writer(folder / "b.bin", {.vocab_size = 10, .target_mask = true});
  writer.append(std::vector<std::int32_t>{3, 4}, std::vector<std::uint8_t>{0, 1});
  writer.finish();
  const auto stream = TokenStream::open({(folder / "*.bin").string()});
  EXPECT_TRUE(stream->has_target_mask());
  std::vector<std::uint8_t> mask(4);
  stream->read_target_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 0, 1}));
}

}  // namespace
}  // namespace quench
