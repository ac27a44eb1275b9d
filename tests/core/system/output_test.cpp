// Output targets of verbs: files and whole folders.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/safetensors/safetensors.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/output_file.h"
#include "core/system/output_folder.h"
#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool begins_with_own(const fs::path& file) {
  return read_beginning(file, 3) == "own";
}

TEST(OutputFileRules, OnlyEarlierOutputsAreReplaced) {
  const TempDir dir;
  const OutputFileRules rules{.is_own = begins_with_own};
  EXPECT_EQ(message_of([&] { require_output_file(dir / "new", rules); }), "");
  EXPECT_THAT(message_of([&] { require_output_file(dir / "no" / "new", rules); }), HasSubstr("there is no folder"));
  EXPECT_THAT(message_of([&] { require_output_file(dir.path(), rules); }), HasSubstr("that is a folder"));
  write_file(dir / "empty", "");
  EXPECT_EQ(message_of([&] { require_output_file(dir / "empty", rules); }), "");
  write_file(dir / "earlier", "own text");
  EXPECT_EQ(message_of([&] { require_output_file(dir / "earlier", rules); }), "");
  write_file(dir / "thesis", "mine");
  EXPECT_THAT(message_of([&] { require_output_file(dir / "thesis", rules); }), HasSubstr("--overwrite"));
  EXPECT_EQ(message_of([&] { require_output_file(dir / "thesis", {.overwrite = true}); }), "");
  fs::create_symlink(dir / "nowhere", dir / "link");
  EXPECT_THAT(message_of([&] { require_output_file(dir / "link", {.overwrite = true}); }),
              HasSubstr("link to nothing"));
}

// Root writes to every folder: it takes another effective user for the check.
TEST(OutputFileRules, FoldersThatCannotBeWrittenToAreNamed) {
  constexpr uid_t kNobody = 65534;
  const TempDir dir;
  fs::create_directory(dir / "closed");
  write_file(dir / "closed" / "earlier", "own text");
  fs::create_symlink(dir / "closed" / "earlier", dir / "link");
  constexpr fs::perms kWrite = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  fs::permissions(dir.path(), fs::perms::all);  // the other user keeps root's group
  fs::permissions(dir / "closed", fs::perms::all & ~kWrite);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  const OutputFileRules rules{.is_own = begins_with_own};
  const std::string fresh = message_of([&] { require_output_file(dir / "closed" / "new", rules); });
  const std::string replaced = message_of([&] { require_output_file(dir / "link", rules); });
  const std::string open = message_of([&] { require_output_file(dir / "new", rules); });
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(dir / "closed", fs::perms::owner_all);
  for (const std::string& message : {fresh, replaced})
    EXPECT_THAT(message, HasSubstr((dir / "closed").string() + " cannot be written to: Permission denied"));
  EXPECT_EQ(open, "");
}

TEST(OutputFileRules, AnInputIsNeverAnOutput) {
  const TempDir dir;
  write_file(dir / "input", "own");
  fs::create_symlink(dir / "input", dir / "link");
  fs::create_hard_link(dir / "input", dir / "hard");
  const OutputFileRules rules{.overwrite = true, .inputs = {dir / "input", dir / "absent"}, .is_own = begins_with_own};
  for (const char* name : {"input", "link", "hard", "absent"})
    EXPECT_THAT(message_of([&] { require_output_file(dir / name, rules); }), HasSubstr("reads")) << name;
}

TEST(OutputFileRules, PipesOnlyWhereTheVerbCanStream) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of([&] { require_output_file(dir / "pipe", {}); }), "");
  EXPECT_THAT(message_of([&] { require_output_file(dir / "pipe", {.stream = false}); }), HasSubstr("a device"));
}

// A device of the test's own, so that a program that replaces it does no harm.
TEST(WriteFileAtomically, WritesToADeviceAndDoesNotReplaceIt) {
  const TempDir dir;
  const fs::path null = dir / "null";
  if (::mknod(null.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) GTEST_SKIP() << "only root makes devices";
  write_file_atomically(null, "text");
  EXPECT_TRUE(fs::is_character_file(null));
  const float value = 1;
  const SafetensorsItem item{"x", DType::f32, {1}, std::as_bytes(std::span(&value, 1))};
  EXPECT_THAT(message_of([&] { write_safetensors(null, {item}); }), HasSubstr("not a file"));
  EXPECT_TRUE(fs::is_character_file(null));
}

TEST(WriteFileAtomically, ALinkStaysAndItsTargetIsReplaced) {
  const TempDir dir;
  write_file(dir / "target", "old");
  fs::create_symlink(dir / "target", dir / "link");
  write_file_atomically(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "target"), "new");
  fs::create_symlink(dir / "absent", dir / "dangling");
  EXPECT_THAT(message_of([&] { write_file_atomically(dir / "dangling", "x"); }), HasSubstr("link to nothing"));
}

bool is_own(std::string_view entry) {
  return entry == "a" || entry == "b" || entry == "sub/" || entry == "sub/c";
}

TEST(OutputFolder, NamesWhatIsForeign) {
  const TempDir dir;
  EXPECT_THAT(foreign_entries(dir / "absent", is_own), ElementsAre());
  write_file(dir / "a", "");
  fs::create_directory(dir / "sub");
  write_file(dir / "sub" / "c", "");
  write_file(temporary_name(dir / "a"), "");
  EXPECT_THAT(foreign_entries(dir.path(), is_own), ElementsAre());
  fs::create_symlink(dir / "a", dir / "b");
  fs::create_directory(dir / ".git");
  write_file(dir / ".git" / "HEAD", "");
  write_file(dir / "sub" / "d", "");
  EXPECT_THAT(foreign_entries(dir.path(), is_own), ElementsAre(".git/", "b", "sub/d"));
  EXPECT_EQ(list_names({"1", "2", "3", "4", "5", "6", "7"}), "1, 2, 3, 4, 5 and 2 more");
}

TEST(OutputFolder, ReplacesOwnFilesAndRefusesForeignOnes) {
  const TempDir dir;
  const auto write = [&](const std::string& content) {
    StagingFolder fresh(dir / "out");
    write_file(fresh.path() / "a", content);
    replace_folder(fresh, dir / "out", is_own);
  };
  write("one");
  write_file(dir / "out" / "b", "older");
  write("two");
  EXPECT_EQ(read_file(dir / "out" / "a"), "two");
  EXPECT_FALSE(fs::exists(dir / "out" / "b"));
  write_file(dir / "out" / "notes.txt", "mine");
  EXPECT_THAT(message_of([&] { write("three"); }), HasSubstr("notes.txt"));
  EXPECT_EQ(read_file(dir / "out" / "a"), "two");
  EXPECT_EQ(read_file(dir / "out" / "notes.txt"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(OutputFolder, FollowsLinksWhenItComparesPaths) {
  const TempDir dir;
  fs::create_directories(dir / "real" / "inner");
  fs::create_directory_symlink(dir / "real", dir / "link");
  EXPECT_TRUE(is_within(dir / "link" / "inner" / "new", dir / "real"));
  EXPECT_TRUE(is_within(dir / "real" / "." / "inner" / "..", dir / "link"));
  EXPECT_FALSE(is_within(dir / "real", dir / "link" / "inner"));
  EXPECT_FALSE(is_within(dir / "realistic", dir / "real"));
}

}  // namespace
}  // namespace quench
