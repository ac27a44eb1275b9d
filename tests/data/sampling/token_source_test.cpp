#include "data/formats/token_source.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "data/formats/shard_writer.h"
#include "data/sampling/data_formats.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::llmc_bytes;
using testing::TempDir;
using testing::write_file;

TEST(TokenSource, IdsOutsideTheVocabularyAreNamed) {
  TempDir folder;
  const auto path = folder / "a.bin";
  for (const std::size_t bad : std::vector<std::size_t>{0, 1, 9000, 19999}) {
    std::vector<std::uint32_t> tokens(20000, 99);
    tokens[bad] = 100;
    write_file(path, llmc_bytes(tokens));
    const auto source = open_token_file(path, {.vocab_size = 100});
    expect_error(ErrorCode::corrupt, {"a.bin", fmt::format("token {} has id 100", bad), "vocabulary of 100"},
                 [&] { (void)testing::read_all_tokens(*source); });
    expect_error(ErrorCode::corrupt, {fmt::format("token {} has id 100", bad)},
                 [&] { (void)testing::read_tokens(*source, bad, 1); });
  }
  std::vector<std::uint32_t> negative(10, 3);
  negative[4] = 0xFFFFFFFFu;
  write_file(path, llmc_bytes(negative));
  expect_error(ErrorCode::corrupt, {"token 4"}, [&] { (void)testing::read_all_tokens(*open_token_file(path)); });
}

template <class T>
void expect_negative_found(const std::string& descr, T value, const std::string& text) {
  TempDir folder;
  write_file(folder / "a.npy", testing::npy_bytes("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3,), }",
                                                  bytes_of(std::vector<T>{1, value, 2})));
  const auto source = open_token_file(folder / "a.npy", {.vocab_size = 1000000});
  expect_error(ErrorCode::corrupt, {"token 1 has id " + text}, [&] { (void)testing::read_all_tokens(*source); });
}

TEST(TokenSource, NegativeAndWideIdsAreFoundInEveryType) {
  expect_negative_found<std::int8_t>("|i1", -1, "-1");
  expect_negative_found<std::int16_t>("<i2", -300, "-300");
  expect_negative_found<std::int32_t>("<i4", -5, "-5");
  expect_negative_found<std::int64_t>("<i8", -5, "-5");
  expect_negative_found<std::int64_t>("<i8", (std::int64_t{1} << 32) + 7, "4294967303");
  expect_negative_found<std::uint64_t>("<u8", ~std::uint64_t{0}, "18446744073709551615");
  expect_negative_found<std::uint32_t>("<u4", 1000000, "1000000");
}

TEST(TokenSource, HeaderlessFilesAreNeverGuessed) {
  TempDir folder;
  const auto path = folder / "train.bin";
  write_file(path, bytes_of(std::vector<std::uint16_t>{50256, 1, 2}));
  expect_error(ErrorCode::unsupported, {"train.bin", "nanogpt"}, [&] { (void)open_token_file(path); });
  const auto source =
      open_token_file(path, {.format = token_formats().find("nanogpt"), .vocab_size = 50257, .eos_id = 50256});
  EXPECT_EQ(testing::read_all_tokens(*source), (std::vector<std::int32_t>{50256, 1, 2}));
  EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(open_token_file(path, {.format = token_formats().find("nanogpt"), .vocab_size = 65536})->size(), 3u);
  expect_error(ErrorCode::invalid_argument, {"train.bin", "65537"},
               [&] { (void)open_token_file(path, {.format = token_formats().find("nanogpt"), .vocab_size = 65537}); });
  write_file(path, "abc");
  expect_error(ErrorCode::corrupt, {"3 bytes"},
               [&] { (void)open_token_file(path, {.format = token_formats().find("nanogpt")}); });
}

TEST(TokenSource, OtherFilesGetAHint) {
  TempDir folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
      {"PK\x03\x04zip", "torch.save"},
      {"PAR1....", "Parquet"},
      {"{\"text\": \"hello\"}\n", "looks like text"},
      {"\x1f\x8b\x08", "compressed"},
      {"", "empty"}};
  for (const auto& [bytes, hint] : cases) {
    write_file(folder / "x.bin", bytes);
    expect_error(ErrorCode::unsupported, {"x.bin", hint}, [&] { (void)open_token_file(folder / "x.bin"); });
  }
}

TEST(TokenSource, MissingFoldersAndPipesAreErrors) {
  TempDir folder;
  expect_error(ErrorCode::not_found, {"none.bin"}, [&] { (void)open_token_file(folder / "none.bin"); });
  expect_error(ErrorCode::unsupported, {"not a regular file"}, [&] { (void)open_token_file(folder.path()); });
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::unsupported, {"not a regular file"}, [&] { (void)open_token_file(folder / "pipe"); });
  expect_error(ErrorCode::bad_config, {"'bin'", "jsonl, json, csv, tsv, parquet, arrow, quench", "nanogpt"},
               [] { (void)data_format_named("bin"); });
}

TEST(TokenSource, VocabularyAndTokenizerMustMatchTheFile) {
  TempDir folder;
  const auto path = folder / "a.bin";
  ShardWriter writer(path, {.vocab_size = 1000, .tokenizer_fingerprint = "one"});
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  writer.finish();
  EXPECT_EQ(open_token_file(path, {.vocab_size = 1024})->size(), 3u);
  expect_error(ErrorCode::invalid_argument, {"a.bin", "1000", "999"},
               [&] { (void)open_token_file(path, {.vocab_size = 999}); });
  expect_error(ErrorCode::invalid_argument, {"a.bin", "one", "two"},
               [&] { (void)open_token_file(path, {.tokenizer_fingerprint = "two"}); });
}

class ChangingFile : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(path_, llmc_bytes(std::vector<std::uint16_t>(100000, 5)));
    source_ = open_token_file(path_);
    EXPECT_EQ(testing::read_tokens(*source_, 99990, 10).back(), 5);
  }
  void expect_fails(const std::string& part) {
    expect_error(ErrorCode::io, {"a.bin", part}, [&] { (void)testing::read_tokens(*source_, 10, 10); });
  }
  TempDir folder_;
  std::filesystem::path path_ = folder_ / "a.bin";
  std::unique_ptr<TokenSource> source_;
};

TEST_F(ChangingFile, Truncated) {
  ASSERT_EQ(::truncate(path_.c_str(), 5000), 0);
  expect_fails("5000 now");
}

TEST_F(ChangingFile, Deleted) {
  std::filesystem::remove(path_);
  expect_fails("deleted or replaced");
}

TEST_F(ChangingFile, Replaced) {
  write_file(folder_ / "b.bin", llmc_bytes(std::vector<std::uint16_t>(100000, 6)));
  std::filesystem::rename(folder_ / "b.bin", path_);
  expect_fails("deleted or replaced");
}

TEST_F(ChangingFile, Overwritten) {
  std::filesystem::last_write_time(path_, std::filesystem::last_write_time(path_) + std::chrono::milliseconds(1));
  expect_fails("written to");
}

TEST(TokenSource, ReadsFromManyThreads) {
  TempDir folder;
  const auto tokens = testing::iota<std::uint32_t>(50000);
  write_file(folder / "a.bin", llmc_bytes(tokens));
  const auto source = open_token_file(folder / "a.bin");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = static_cast<std::uint64_t>(t); i + 100 < 50000; i += 97)
        if (testing::read_tokens(*source, i, 100).front() != static_cast<std::int32_t>(i)) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(TokenSource, DescriptorLimitIsRaisedWhenNeeded) {
  TempDir folder;
  write_file(folder / "a.bin", llmc_bytes(std::vector<std::uint16_t>{1, 2}));
  rlimit original{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &original), 0);
  rlimit low = original;
  low.rlim_cur = 32;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (int i = 0; i < 40; ++i) sources.push_back(open_token_file(folder / "a.bin"));
  EXPECT_EQ(sources.back()->size(), 2u);
  sources.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &original), 0);
}

}  // namespace
}  // namespace quench
