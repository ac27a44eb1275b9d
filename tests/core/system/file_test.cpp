#include "core/system/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/system/check.h"
#include "core/system/temporary.h"
#include "tests/core/system/file_size_limit.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

template <class Call>
ErrorCode code_of(Call&& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::failed;
}

std::size_t count_files(const std::filesystem::path& folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(OutputFile, WritesFrontToBack) {
  const testing::TempDir folder;
  OutputFile file(folder / "f");
  file.write("ab");
  file.write("");
  file.write("cd");
  EXPECT_EQ(file.written(), 4u);
  file.close();
  EXPECT_EQ(testing::read_file(folder / "f"), "abcd");
}

TEST(OutputFile, ReservedSpaceThatIsNotUsedIsCutOff) {
  const testing::TempDir folder;
  OutputFile file(folder / "f", 1 << 20);
  EXPECT_EQ(std::filesystem::file_size(folder / "f"), 1u << 20);
  file.write("abc");
  file.close();
  EXPECT_EQ(testing::read_file(folder / "f"), "abc");
}

TEST(OutputFile, DoesNotTouchAnExistingFile) {
  const testing::TempDir folder;
  testing::write_file(folder / "f", "old");
  std::string message;
  EXPECT_EQ(code_of([&] { OutputFile file(folder / "f"); }, &message), ErrorCode::io);
  EXPECT_THAT(message, HasSubstr((folder / "f").string()));
  EXPECT_EQ(testing::read_file(folder / "f"), "old");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "link");
  EXPECT_EQ(code_of([&] { OutputFile file(folder / "link"); }), ErrorCode::io);
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
}

TEST(OutputFile, NoSpaceIsReportedBeforeAnythingIsWritten) {
  const testing::TempDir folder;
  const testing::FileSizeLimit limit(1 << 16);
  std::string message;
  EXPECT_EQ(code_of([&] { OutputFile file(folder / "f", 1 << 20); }, &message), ErrorCode::no_space);
  EXPECT_THAT(message, HasSubstr("1048576 bytes"));
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST(OutputFile, NoSpaceWhileWritingIsAnError) {
  const testing::TempDir folder;
  const testing::FileSizeLimit limit(1 << 16);
  OutputFile file(folder / "f");
  std::string message;
  EXPECT_NE(code_of([&] { file.write(std::string(1 << 20, 'x')); }, &message), ErrorCode::failed);
  EXPECT_THAT(message, HasSubstr((folder / "f").string()));
}

TEST(WriteFileAtomically, ReplacesAndLeavesNothingBehind) {
  const testing::TempDir folder;
  write_file_atomically(folder / "f", "one");
  write_file_atomically(folder / "f", "two");
  EXPECT_EQ(testing::read_file(folder / "f"), "two");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(WriteFileAtomically, AFailureLeavesTheOldFile) {
  const testing::TempDir folder;
  write_file_atomically(folder / "f", "old");
  {
    const testing::FileSizeLimit limit(1 << 16);
    EXPECT_EQ(code_of([&] { write_file_atomically(folder / "f", std::string(1 << 20, 'x')); }), ErrorCode::no_space);
  }
  EXPECT_EQ(testing::read_file(folder / "f"), "old");
  EXPECT_EQ(count_files(folder.path()), 1u);
  EXPECT_EQ(code_of([&] { write_file_atomically(folder / "none" / "f", "x"); }), ErrorCode::not_found);
}

TEST(RenameDurably, MovesOverAnExistingFile) {
  const testing::TempDir folder;
  testing::write_file(folder / "a", "a");
  testing::write_file(folder / "b", "b");
  rename_durably(folder / "a", folder / "b");
  EXPECT_EQ(testing::read_file(folder / "b"), "a");
  EXPECT_EQ(code_of([&] { rename_durably(folder / "a", folder / "c"); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { sync_directory(folder / "none"); }), ErrorCode::not_found);
}

TEST(TemporaryName, IsInTheSameFolderAndUnique) {
  const auto a = temporary_name("/x/model.safetensors");
  const auto b = temporary_name("/x/model.safetensors");
  EXPECT_EQ(a.parent_path(), "/x");
  EXPECT_THAT(a.filename().string(), ::testing::StartsWith("model.safetensors.tmp-"));
  EXPECT_NE(a, b);
  EXPECT_EQ(temporary_name("plain").parent_path(), ".");
}

TEST(ReadFile, ReturnsAllBytesWithinTheLimit) {
  const testing::TempDir folder;
  testing::write_file(folder / "f", std::string("a\0b", 3));
  EXPECT_EQ(read_file(folder / "f", 3), std::string("a\0b", 3));
  EXPECT_EQ(code_of([&] { (void)read_file(folder / "f", 2); }), ErrorCode::corrupt);
  testing::write_file(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty", 0), "");
}

TEST(ReadFile, RefusesWhatIsNotARegularFile) {
  const testing::TempDir folder;
  EXPECT_EQ(code_of([&] { (void)read_file(folder / "none", 10); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { (void)read_file(folder.path(), 10); }), ErrorCode::io);
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { (void)read_file(folder / "fifo", 10); }), ErrorCode::io);
}

TEST(FreeDiskBytes, LooksAtTheNearestExistingFolder) {
  const testing::TempDir folder;
  EXPECT_GT(free_disk_bytes(folder.path()), 0u);
  EXPECT_GT(free_disk_bytes(folder / "not" / "yet" / "there"), 0u);
}

TEST(ErrnoText, IsTheSystemsMessage) {
  EXPECT_THAT(errno_text(ENOENT), HasSubstr("No such file"));
}

}  // namespace
}  // namespace quench
