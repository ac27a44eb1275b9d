#include "data/formats/validation_cache.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "core/json/json.h"
#include "data/formats/shard_writer.h"
#include "data/formats/token_source.h"
#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;
using testing::llmc_bytes;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

// Longer than the resolution of file times.
void let_time_pass() {
  ::usleep(150'000);
}

TEST(ContentHash, WholeFilesHaveTheHashOfXxhsum) {
  TempDir folder;
  write_file(folder / "a", "");
  const ContentHash empty = hash_content(BinaryFile(folder / "a"));
  EXPECT_EQ(empty.xxh3_128, "99aa06d3014798d86001c324468d497f");  // XXH128 of no bytes
  EXPECT_EQ(empty.bytes, 0u);
  EXPECT_FALSE(empty.sampled);
  write_file(folder / "a", "quench");
  write_file(folder / "b", "quencH");
  EXPECT_NE(hash_content(BinaryFile(folder / "a")), hash_content(BinaryFile(folder / "b")));
}

TEST(ContentHash, HugeFilesAreSampledWithBothEndsAndTheirSize) {
  TempDir folder;
  const auto path = folder / "sparse";
  constexpr std::uint64_t kSize = std::uint64_t{300} << 20;
  const auto with = [&](std::uint64_t size, std::uint64_t at) {
    write_file(path, "");
    std::filesystem::resize_file(path, size);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('x');
    file.close();
    return hash_content(BinaryFile(path), 1 << 20);
  };
  const ContentHash first = with(kSize, 0);
  EXPECT_TRUE(first.sampled);
  EXPECT_EQ(first.bytes, kSize);
  EXPECT_NE(with(kSize, kSize - 1), first);
  EXPECT_NE(with(kSize + 1, 0).xxh3_128, first.xxh3_128);
  EXPECT_EQ(with(kSize, 0), first);
}

TEST(ValidationCache, TokenIdsAreCheckedWhenAFileIsOpened) {
  TempDir folder;
  std::vector<std::uint32_t> tokens(200'000, 99);
  tokens[150'000] = 100;
  write_file(folder / "a.bin", llmc_bytes(tokens));
  ValidationCache checks;
  EXPECT_NO_THROW((void)open_token_file(folder / "a.bin", {.vocab_size = 100}));
  expect_error(ErrorCode::corrupt, {"a.bin", "token 150000 has id 100", "vocabulary of 100"},
               [&] { (void)open_token_file(folder / "a.bin", {.vocab_size = 100, .checks = &checks}); });
  EXPECT_NO_THROW((void)open_token_file(folder / "a.bin", {.vocab_size = 101, .checks = &checks}));
}

TEST(ValidationCache, DamagedShardsAreFoundWhenTheyAreOpened) {
  TempDir folder;
  const auto path = folder / "a.bin";
  {
    ShardWriter writer(path, {.vocab_size = 100});
    writer.append(std::vector<std::int32_t>(5000, 7));
    writer.finish();
  }
  std::string bytes = read_file(path);
  bytes[4000] ^= 8;
  write_file(path, bytes);
  EXPECT_NO_THROW((void)open_token_file(path, {.vocab_size = 100}));
  ValidationCache checks;
  expect_error(ErrorCode::corrupt, {"a.bin", "do not match their hash"},
               [&] { (void)open_token_file(path, {.vocab_size = 100, .checks = &checks}); });
}

// What a memory says of a file is believed until the file changes: shown by a memory that says something else.
TEST(ValidationCache, WhatIsKnownIsNotLookedAtAgain) {
  TempDir folder;
  const auto path = folder / "a.bin", memory = folder / "memory" / "checks.json";
  write_file(path, llmc_bytes(std::vector<std::uint16_t>(1000, 99)));
  let_time_pass();
  ContentHash hash;
  {
    ValidationCache checks(memory);
    (void)open_token_file(path, {.vocab_size = 100, .checks = &checks});
    hash = checks.content(BinaryFile(path));
    checks.save();
  }
  std::string text = read_file(memory);
  text.replace(text.find("\"id_bound\": 100"), 15, "\"id_bound\": 103");
  text.replace(text.find(hash.xxh3_128), 2, "zz");
  write_file(memory, text);
  ValidationCache checks(memory);
  EXPECT_EQ(checks.tokens(BinaryFile(path))->id_bound, 103u);
  EXPECT_EQ(checks.content(BinaryFile(path)).xxh3_128.substr(0, 2), "zz");
  (void)open_token_file(path, {.vocab_size = 100, .checks = &checks});  // too many by the memory: looked at again
  EXPECT_EQ(checks.tokens(BinaryFile(path))->id_bound, 100u);

  const auto time = std::filesystem::last_write_time(path);
  write_file(path, llmc_bytes(std::vector<std::uint16_t>(1000, 98)));
  std::filesystem::last_write_time(path, time);
  EXPECT_FALSE(checks.tokens(BinaryFile(path)));
  EXPECT_NE(checks.content(BinaryFile(path)), hash);
}

TEST(ValidationCache, AFileThatChangedAMomentAgoIsNotRemembered) {
  TempDir folder;
  write_file(folder / "a", "quench");
  ValidationCache checks(folder / "checks.json");
  (void)checks.content(BinaryFile(folder / "a"));
  checks.save();
  EXPECT_FALSE(std::filesystem::exists(folder / "checks.json"));
}

TEST(ValidationCache, AnUnreadableMemoryIsEmpty) {
  TempDir folder;
  write_file(folder / "a", "quench");
  let_time_pass();
  for (const char* text : {"", "{", "[]", R"({"files": 3})", R"({"files": {"x": {"content": {}}}})"}) {
    write_file(folder / "checks.json", text);
    ValidationCache checks(folder / "checks.json");
    EXPECT_EQ(checks.content(BinaryFile(folder / "a")).bytes, 6u);
    checks.save();
    EXPECT_NO_THROW((void)Json::parse_file(folder / "checks.json").at("files"));
  }
}

}  // namespace
}  // namespace quench
