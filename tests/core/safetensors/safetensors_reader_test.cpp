#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "core/safetensors/safetensors.h"
#include "core/system/threads.h"
#include "tests/core/safetensors/safetensors_file.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::safetensors_file;

const char kTwoTensors[] =
    R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I16","shape":[3],"data_offsets":[4,10]}})";

std::vector<int> bytes_of(const SafetensorsReader& reader, std::string_view tensor, std::size_t count,
                          std::uint64_t offset = 0) {
  std::vector<std::byte> bytes(count);
  reader.read(reader.at(tensor), bytes, offset);
  std::vector<int> values;
  for (const std::byte b : bytes) values.push_back(std::to_integer<int>(b));
  return values;
}

ErrorCode code_of_opening(const std::filesystem::path& path) {
  try {
    const SafetensorsReader reader(path);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.filename().string()));
    return error.code();
  }
  ADD_FAILURE() << path << " was accepted";
  return ErrorCode::failed;
}

TEST(SafetensorsReader, ReadsTensorsAndPartsOfThem) {
  const testing::TempDir folder;
  testing::write_file(folder / "m.safetensors", safetensors_file(kTwoTensors, 10));
  const SafetensorsReader reader(folder / "m.safetensors");
  EXPECT_EQ(reader.path(), folder / "m.safetensors");
  EXPECT_EQ(reader.header().entries.size(), 2u);
  EXPECT_EQ(bytes_of(reader, "a", 4), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(bytes_of(reader, "b", 6), (std::vector{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(bytes_of(reader, "b", 2, 3), (std::vector{7, 8}));
  EXPECT_EQ(bytes_of(reader, "b", 0, 6), std::vector<int>{});
  EXPECT_THROW((void)bytes_of(reader, "b", 7), Error);
  EXPECT_THROW((void)bytes_of(reader, "b", 1, 6), Error);
  EXPECT_THROW((void)bytes_of(reader, "b", 2, ~std::uint64_t{0}), Error);
}

TEST(SafetensorsReader, LargeReadsAreSplitAmongThreads) {
  const testing::TempDir folder;
  constexpr std::size_t kBytes = (std::size_t{9} << 20) + 7;
  const std::string header = fmt::format(R"({{"w":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}})", kBytes);
  const std::string file = safetensors_file(header, kBytes);
  const std::size_t start = file.size() - kBytes;
  testing::write_file(folder / "m.safetensors", file);
  const int threads = thread_count();
  set_thread_count(3);
  const SafetensorsReader reader(folder / "m.safetensors");
  std::vector<std::byte> bytes(kBytes - 5);
  reader.read(reader.at("w"), bytes, 5);
  EXPECT_EQ(std::memcmp(bytes.data(), file.data() + start + 5, bytes.size()), 0);
  std::filesystem::resize_file(folder / "m.safetensors", start + kBytes - 1);
  try {
    reader.read(reader.at("w"), bytes, 5);
    ADD_FAILURE() << "a file that became shorter was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("no byte {}", start + kBytes - 1)));
  }
  set_thread_count(threads);
}

TEST(SafetensorsReader, FindsByName) {
  const testing::TempDir folder;
  testing::write_file(folder / "m.safetensors", safetensors_file(kTwoTensors, 10));
  const SafetensorsReader reader(folder / "m.safetensors");
  ASSERT_NE(reader.find("b"), nullptr);
  EXPECT_EQ(reader.find("b")->dtype, DType::i16);
  EXPECT_EQ(reader.find("c"), nullptr);
  EXPECT_EQ(reader.find(""), nullptr);
  EXPECT_EQ(reader.find("ab"), nullptr);
  try {
    (void)reader.at("lm_head.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("m.safetensors has no tensor \"lm_head.weight\""));
  }
}

TEST(SafetensorsReader, SurvivesAMove) {
  const testing::TempDir folder;
  testing::write_file(folder / "m.safetensors", safetensors_file(kTwoTensors, 10));
  std::vector<SafetensorsReader> readers;
  readers.emplace_back(folder / "m.safetensors");
  readers.emplace_back(folder / "m.safetensors");
  EXPECT_EQ(bytes_of(readers[0], "a", 4), (std::vector{0, 1, 2, 3}));
}

TEST(SafetensorsReader, OpensOnlyRegularFiles) {
  const testing::TempDir folder;
  EXPECT_EQ(code_of_opening(folder / "none.safetensors"), ErrorCode::not_found);
  std::filesystem::create_directory(folder / "dir.safetensors");
  EXPECT_EQ(code_of_opening(folder / "dir.safetensors"), ErrorCode::io);
  ASSERT_EQ(::mkfifo((folder / "fifo.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(code_of_opening(folder / "fifo.safetensors"), ErrorCode::io);
  std::filesystem::create_symlink("loop.safetensors", folder / "loop.safetensors");
  EXPECT_EQ(code_of_opening(folder / "loop.safetensors"), ErrorCode::io);
  testing::write_file(folder / "blob", safetensors_file(kTwoTensors, 10));
  std::filesystem::create_symlink("blob", folder / "link.safetensors");
  EXPECT_EQ(SafetensorsReader(folder / "link.safetensors").header().entries.size(), 2u);
}

TEST(SafetensorsReader, ReportsTheFaultWithThePath) {
  const testing::TempDir folder;
  testing::write_file(folder / "m.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  try {
    const SafetensorsReader reader(folder / "m.safetensors");
    FAIL();
  } catch (const SafetensorsError& error) {
    EXPECT_EQ(error.fault(), SafetensorsFault::wrong_file_type);
    EXPECT_THAT(error.what(), HasSubstr((folder / "m.safetensors").string()));
  }
  EXPECT_EQ((testing::write_file(folder / "e.safetensors", ""), code_of_opening(folder / "e.safetensors")),
            ErrorCode::corrupt);
}

TEST(SafetensorsReader, AFileTruncatedInUseIsAnErrorAndNoSignal) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  const std::string file = safetensors_file(kTwoTensors, 10);
  testing::write_file(path, file);
  const SafetensorsReader reader(path);
  std::filesystem::resize_file(path, file.size() - 3);
  EXPECT_EQ(bytes_of(reader, "a", 4), (std::vector{0, 1, 2, 3}));
  try {
    (void)bytes_of(reader, "b", 6);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("became shorter"));
  }
}

TEST(SafetensorsReader, AFileReplacedInUseIsReadAsItWas) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  testing::write_file(path, safetensors_file(kTwoTensors, 10));
  const SafetensorsReader reader(path);
  testing::write_file(folder / "new", "something else");
  std::filesystem::rename(folder / "new", path);
  EXPECT_EQ(bytes_of(reader, "b", 6), (std::vector{4, 5, 6, 7, 8, 9}));
}

TEST(SafetensorsReader, ReadsMayRunConcurrently) {
  const testing::TempDir folder;
  const std::size_t size = 1 << 20;
  testing::write_file(
      folder / "m.safetensors",
      safetensors_file(fmt::format(R"({{"t":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}})", size), size));
  const SafetensorsReader reader(folder / "m.safetensors");
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      std::vector<std::byte> piece(4096);
      for (std::size_t offset = t * piece.size(); offset < size; offset += wrong.size() * piece.size()) {
        reader.read(reader.at("t"), piece, offset);
        for (std::size_t i = 0; i < piece.size(); ++i)
          wrong[t] += std::to_integer<std::size_t>(piece[i]) != (offset + i) % 251;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace quench
