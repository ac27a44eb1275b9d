// quench run: processes that leave their worker's process group, the launcher's supervisor, ranks that end too early.

#include <gmock/gmock.h>

#include "tests/apps/launcher/launcher.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

class LauncherSessions : public Launcher {};

// Shell: a child in a session of its own, and one that is a daemon without the worker's variables.
const std::string kSessions =
    "setsid sh -c 'echo $$ > session.$RANK.tmp; mv session.$RANK.tmp session.$RANK; exec sleep 300' & "
    "env -i setsid sh -c \"sh -c 'echo \\$\\$ > daemon.$RANK.tmp; mv daemon.$RANK.tmp daemon.$RANK; exec sleep 300' "
    "&\"; "
    "while [ ! -e session.$RANK -o ! -e daemon.$RANK ]; do sleep 0.02; done; ";

TEST_F(LauncherSessions, NothingInASessionOfItsOwnOutlivesAKilledLauncher) {
  const pid_t launcher =
      start({"--nproc-per-node", "2"}, kSessions + "echo $$ > pid.$RANK; touch ready.$RANK; sleep 300");
  ASSERT_TRUE(wait_for_file("ready.0") && wait_for_file("ready.1"));
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(finish(launcher).status, 137);
  for (const char* name : {"pid.0", "pid.1", "session.0", "session.1", "daemon.0", "daemon.1"})
    EXPECT_TRUE(ends_within(pid_in(name), 3)) << name;
}

TEST_F(LauncherSessions, AFailureLeavesNothingInASessionOfItsOwn) {
  const Outcome failed = run({"--nproc-per-node", "2"}, kSessions + "exit 5");
  EXPECT_EQ(failed.status, 5) << failed.errors;
  for (const char* name : {"session.0", "session.1", "daemon.0", "daemon.1"}) {
    if (!fs::exists(folder_ / name)) continue;  // the other rank may fail first
    EXPECT_TRUE(has_ended(pid_in(name))) << name;
  }
  // Services of a successful run, in sessions of their own, stay.
  const Outcome success = run({}, "rm -f session.* daemon.*; " + kSessions + "exit 0");
  EXPECT_EQ(success.status, 0) << success.errors;
  for (const char* name : {"session.0", "daemon.0"}) {
    EXPECT_FALSE(has_ended(pid_in(name))) << name;
    ::kill(pid_in(name), SIGKILL);
  }
}

// Between launcher and workers is one process: with it, the workers end and the launcher says so.
TEST_F(LauncherSessions, AKilledSupervisorEndsTheWorkersAndTheLauncher) {
  const pid_t launcher = start({"--nproc-per-node", "2"},
                               "echo $PPID > parent; echo $$ > pid.$RANK; touch ready.$RANK; "
                               "sleep 300");
  ASSERT_TRUE(wait_for_file("ready.0") && wait_for_file("ready.1"));
  ASSERT_NE(pid_in("parent"), launcher);
  ::kill(pid_in("parent"), SIGKILL);
  EXPECT_EQ(finish(launcher).status, 137);
  for (const char* name : {"pid.0", "pid.1"}) EXPECT_TRUE(ends_within(pid_in(name), 2)) << name;
}

TEST_F(LauncherSessions, ARankThatEndsBeforeAllHaveMetEndsTheOthersSoon) {
  write_tiny_run(folder_.path());
  const Outcome outcome = run({"--nproc-per-node", "2"}, "[ $RANK = 1 ] && exit 0; exec '" + program_path() +
                                                             "' train run.json --device=cpu --run.folder=run");
  EXPECT_EQ(outcome.status, 1) << outcome.errors;
  EXPECT_LT(seconds_, 15);
  EXPECT_THAT(outcome.errors, HasSubstr("message   : rank 1 has ended with status 0 before all ranks had met"));
}

}  // namespace
}  // namespace quench::testing
