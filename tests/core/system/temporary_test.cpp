#include "core/system/temporary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;
using testing::write_file;

std::set<std::string> names(const fs::path& folder) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.insert(entry.path().filename().string());
  return found;
}

// Leftovers of a process killed while it fills a folder.
fs::path killed_staging(const fs::path& target) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const StagingFolder staging(target);
    write_file(staging.path() / "part", "half");
    const std::string path = staging.path().string();
    if (::write(pipe[1], path.data(), path.size()) < 0) ::_exit(1);
    ::pause();
  }
  char text[4096] = {};
  EXPECT_GT(::read(pipe[0], text, sizeof text - 1), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  return text;
}

TEST(Temporary, NamesAreKnownAgainAndNothingElseIs) {
  EXPECT_TRUE(is_temporary_name(temporary_name("export").filename().string()));
  EXPECT_TRUE(is_temporary_name(temporary_name("a.tmp-b").filename().string()));
  for (const char* other :
       {"export", "export.tmp-1", "export.tmp-1-2-3", "export.tmp-mine", "notes.tmp-", "x.tmp-1-0123456-01234567-0-0",
        "x.tmp-1-01234567-01234567-0-0-", ".tmp-1-01234567-01234567-0-0"})
    EXPECT_FALSE(is_temporary_name(other)) << other;
}

TEST(Temporary, WhatAKilledProcessLeftIsRemoved) {
  const TempDir dir;
  const fs::path left = killed_staging(dir / "export");
  ASSERT_TRUE(fs::exists(left / "part"));
  remove_stale_temporaries(dir.path(), "another");
  EXPECT_TRUE(fs::exists(left));
  remove_stale_temporaries(dir.path(), "export");
  EXPECT_THAT(names(dir.path()), ::testing::IsEmpty());
}

TEST(Temporary, WhatALivingProcessWritesStays) {
  const TempDir dir;
  const StagingFolder staging(dir / "export");
  remove_stale_temporaries(dir.path());
  EXPECT_TRUE(fs::exists(staging.path()));
}

TEST(Temporary, FilesCountAMinuteAfterTheirLastChange) {
  const TempDir dir;
  const fs::path file = temporary_name(dir / "config.json");
  write_file(file, "half");
  remove_stale_temporaries(dir.path());
  EXPECT_TRUE(fs::exists(file));
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  remove_stale_temporaries(dir.path());
  EXPECT_FALSE(fs::exists(file));
}

TEST(Temporary, OtherMachinesAndOtherNamesAreLeftAlone) {
  const TempDir dir;
  fs::create_directory(dir / "export.tmp-1-00000000-00000000-0-0");
  fs::create_directory(dir / "export.tmp-mine");
  write_file(dir / "notes.tmp-1-2-3", "x");
  fs::create_symlink(dir / "notes.tmp-1-2-3", temporary_name(dir / "link"));
  const auto before = names(dir.path());
  remove_stale_temporaries(dir.path());
  EXPECT_EQ(names(dir.path()), before);
}

TEST(Temporary, AStagingFolderGoesUnlessItWasReleased) {
  const TempDir dir;
  { const StagingFolder staging(dir / "a" / "b"); }
  EXPECT_THAT(names(dir / "a"), ::testing::IsEmpty());
  fs::path kept;
  {
    StagingFolder staging(dir / "a" / "b");
    kept = staging.path();
    staging.release();
  }
  EXPECT_TRUE(fs::exists(kept));
}

}  // namespace
}  // namespace quench
