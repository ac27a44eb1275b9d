#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/system/check.h"
#include "tests/fault/process.h"
#include "tests/testing.h"
#include "train/checkpoint/run_lock.h"

namespace quench {
namespace {

using testing::driver;
using ::testing::HasSubstr;
using testing::Process;
using testing::TempDir;

std::string host() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::string locked_message(const std::filesystem::path& folder) {
  try {
    const RunLock lock(folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::locked);
    return error.what();
  }
  return "(locked)";
}

TEST(RunLock, SecondHolderIsRefusedNamingTheFirst) {
  const TempDir dir;
  {
    const RunLock lock(dir / "run");
    const std::string expected = fmt::format("is locked by process {} on host {}", ::getpid(), host());
    EXPECT_THAT(locked_message(dir / "run"), HasSubstr(expected));
  }
  EXPECT_EQ(locked_message(dir / "run"), "(locked)");
}

TEST(RunLock, ALockCannotBeTakenOnAFile) {
  const TempDir dir;
  testing::write_file(dir / "file", "");
  EXPECT_THROW(RunLock lock(dir / "file"), Error);
  EXPECT_THROW(RunLock lock(dir / "file" / "below"), Error);
}

TEST(RunLock, ARunningProcessKeepsItAndADeadOneLosesIt) {
  const TempDir dir;
  Process holder(driver(dir.path(), 1'000'000, {"pause=1000"}));
  ASSERT_TRUE(holder.wait_for("saved 1\n"));
  EXPECT_THAT(locked_message(dir.path()), HasSubstr(fmt::format("process {} on host", holder.id())));
  const auto second = Process(driver(dir.path(), 1)).wait();
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr(fmt::format("error locked: run folder {} is locked by process {}",
                                                   std::filesystem::canonical(dir.path()).string(), holder.id())));
  holder.kill();
  EXPECT_EQ(holder.wait().signal, SIGKILL);
  const auto third = Process(driver(dir.path(), 1)).wait();
  EXPECT_EQ(third.status, 0) << third.output;
  EXPECT_THAT(third.output, HasSubstr("ended without releasing its lock; taking over"));
  EXPECT_EQ(locked_message(dir.path()), "(locked)");
}

TEST(RunLock, DeletedLockFileStillExcludesOthers) {
  const TempDir dir;
  RunLock lock(dir.path());
  std::filesystem::remove(dir / ".lock");
  EXPECT_THAT(locked_message(dir.path()), HasSubstr("is locked by"));
  std::filesystem::remove(dir / ".lock");
  lock.confirm();
  EXPECT_TRUE(std::filesystem::exists(dir / ".lock"));
  EXPECT_THAT(locked_message(dir.path()), HasSubstr(fmt::format("is locked by process {}", ::getpid())));
}

// Where folders cannot be locked, the holder notices at its next save that another has taken the place of its file.
TEST(RunLock, ConfirmFindsAnotherHolderOfTheFile) {
  const TempDir dir;
  RunLock lock(dir.path());
  const auto path = dir / ".lock";
  std::filesystem::remove(path);
  const int other = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  try {
    lock.confirm();
    ADD_FAILURE() << "the lock of another process was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::locked);
  }
  ::close(other);
}

// Without flock the process and host in the file decide.
TEST(RunLock, FileSystemWithoutLocks) {
  const TempDir dir;
  const std::string no_flock = "do=ENOSYS;ops=flock";
  const auto attempt = [&](std::int64_t process, const std::string& on) {
    testing::write_file(dir / ".lock", fmt::format("{{\"process\":{},\"host\":\"{}\"}}\n", process, on));
    return Process(driver(dir.path(), 1), no_flock).wait();
  };
  const auto fresh = Process(driver(dir.path(), 1), no_flock).wait();
  EXPECT_EQ(fresh.status, 0) << fresh.output;
  EXPECT_THAT(fresh.output, HasSubstr("this file system does not support locks"));
  const auto alive = attempt(::getpid(), host());
  EXPECT_EQ(alive.status, 1);
  EXPECT_THAT(alive.output, HasSubstr(fmt::format("locked by process {}", ::getpid())));
  const auto dead = attempt(0x3FFFFFFF, host());  // beyond the largest process number
  EXPECT_EQ(dead.status, 0) << dead.output;
  const auto elsewhere = attempt(0x3FFFFFFF, "another-host");
  EXPECT_EQ(elsewhere.status, 1);
  EXPECT_THAT(elsewhere.output, HasSubstr("on host another-host; if that process no longer runs, delete"));
}

}  // namespace
}  // namespace quench
