// quench run with small shell programs as workers.

#include <gmock/gmock.h>

#include <map>

#include "tests/apps/launcher/launcher.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Launcher, WorkersGetTorchrunsVariables) {
  const Outcome outcome =
      run({"--nproc_per_node", "3"},
          "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
          "$ROLE_NAME $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT > out.$RANK; test $MASTER_PORT -gt 0");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    EXPECT_EQ(read_file(folder_ / ("out." + r)), r + "/3 " + r + "/3 0/1 default 127.0.0.1 0\n");
  }
}

TEST_F(Launcher, OptionsComeFromTheEnvironmentToo) {
  ::setenv("PET_NPROC_PER_NODE", "2", 1);
  const Outcome outcome = run({}, "touch was.$RANK");
  ::unsetenv("PET_NPROC_PER_NODE");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(fs::exists(folder_ / "was.1"));
}

TEST_F(Launcher, PassesTheFirstFailuresStatusOn) {
  const std::map<std::string, int> endings = {{"exit 7", 7}, {"kill -SEGV $$", 139}, {"kill -KILL $$", 137}};
  for (const auto& [ending, status] : endings) {
    const Outcome outcome = run({"--nproc-per-node", "2"}, "[ $RANK = 0 ] || { " + ending + "; }; sleep 60");
    EXPECT_EQ(outcome.status, status) << outcome.errors;
    EXPECT_LT(seconds_, 10);
    EXPECT_THAT(outcome.errors, HasSubstr("Root cause (first observed failure):"));
    EXPECT_THAT(outcome.errors, HasSubstr("rank      : 1 (local_rank: 1, node: 0)"));
    EXPECT_THAT(outcome.errors, HasSubstr("exitcode  : " + std::to_string(status)));
    EXPECT_THAT(outcome.errors, Not(HasSubstr("Other failures")));
  }
}

TEST_F(Launcher, TheEarlierFailureIsTheRootCause) {
  const std::string report =
      R"(printf '{"message":{"message":"RuntimeError: rank %s","extraInfo":{"timestamp":"%s"}}}' $RANK $T )"
      R"(> $TORCHELASTIC_ERROR_FILE)";
  // Rank 0 ends first, but says that its error came later.
  const Outcome outcome =
      run({"--nproc-per-node", "2"}, "if [ $RANK = 0 ]; then T=1700000000.5; " + report +
                                         "; exit 4; fi; sleep 0.05; T=1700000000.2; " + report + "; exit 5");
  EXPECT_EQ(outcome.status, 5);
  EXPECT_LT(outcome.errors.find("message   : RuntimeError: rank 1"), outcome.errors.find("RuntimeError: rank 0"));
}

TEST_F(Launcher, ARankThatLeavesEarlyIsNamed) {
  const Outcome outcome = run({"--nproc-per-node", "2"}, "[ $RANK = 1 ] && exit 0; sleep 0.3; exit 1");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("rank 1 left early, with status 0"));
}

TEST_F(Launcher, RestartsAllWorkers) {
  const Outcome outcome =
      run({"--nproc-per-node", "2", "--max-restarts", "2", "--log-dir", "logs", "--redirects", "3"},
          "echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 3");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(read_file(only_file("attempt_0/1/stdout.log")), "attempt 0\n");
  EXPECT_EQ(read_file(only_file("attempt_2/0/stdout.log")), "attempt 2\n");
  const Outcome always = run({"--nproc-per-node", "2", "--max-restarts", "1"}, "exit 9");
  EXPECT_EQ(always.status, 9);
  EXPECT_THAT(always.errors, HasSubstr("restarting all workers in 1 s: restart 1 of 1"));
}

TEST_F(Launcher, RestartsWaitLongerEachTime) {
  const Outcome outcome = run({"--max-restarts", "4", "--restart-backoff", "0.3:1.2"}, "echo >> attempts; exit 3");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(read_file(folder_ / "attempts"), "\n\n\n\n\n");
  for (const char* wait :
       {"in 0.3 s: restart 1 of 4", "in 0.6 s: restart 2 of 4", "in 1.2 s: restart 3 of 4", "in 1.2 s: restart 4 of 4"})
    EXPECT_THAT(outcome.errors, HasSubstr(wait));
  EXPECT_GE(seconds_, 3.3);
  // A stop ends the wait.
  const pid_t launcher = start({"--max-restarts", "4", "--restart-backoff", "100"}, "touch failed; exit 3");
  ASSERT_TRUE(wait_for_file("failed"));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(finish(launcher).status, 143);
}

TEST_F(Launcher, TheSameErrorAtTheSameStepTwiceIsNotTriedAgain) {
  const std::string report =
      R"(printf '{"message":{"message":"Error: loss is NaN","extraInfo":{"timestamp":"1700000000","step":%s}}}' )"
      R"("$STEP" > $TORCHELASTIC_ERROR_FILE; echo >> attempts; exit 6)";
  const Words flags = {"--max-restarts", "9", "--restart-backoff", "0"};
  const Outcome outcome = run(flags, "STEP=7; " + report);
  EXPECT_EQ(outcome.status, 6);
  EXPECT_EQ(read_file(folder_ / "attempts"), "\n\n");
  EXPECT_THAT(outcome.errors, HasSubstr("rank 0 has failed with the same error at step 7 twice in a row"));
  std::filesystem::remove(folder_ / "attempts");
  EXPECT_EQ(run(flags, "STEP=$TORCHELASTIC_RESTART_COUNT; " + report).status, 6);  // it gets on
  EXPECT_EQ(read_file(folder_ / "attempts").size(), 10u);
}

// A program of quench says how far it was; one that does not is started as often as asked.
TEST_F(Launcher, TheSameErrorBeforeTheFirstStepIsNotTriedForEver) {
  const Words flags = {"--max-restarts", "9", "--restart-backoff", "0"};
  write_file(folder_ / "wrong.json", R"({"training": {"stepz": 1}})");
  for (const std::string words : {"train wrong.json", "train missing.json", "train --no-such-option", "no-such-verb"}) {
    std::filesystem::remove(folder_ / "attempts");
    const Outcome outcome = run(flags, "echo >> attempts; exec '" + program_path() + "' " + words);
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(read_file(folder_ / "attempts"), "\n\n") << words;
    EXPECT_THAT(outcome.errors, HasSubstr("rank 0 has failed with the same error before the first step twice"));
  }
  std::filesystem::remove(folder_ / "attempts");
  const std::string silent = R"(echo >> attempts; printf '{"message":{"message":"Error: lost","extraInfo":{}}}' )"
                             R"(> $TORCHELASTIC_ERROR_FILE; exit 6)";
  EXPECT_EQ(run(flags, silent).status, 6);
  EXPECT_EQ(read_file(folder_ / "attempts").size(), 10u);
}

// Escape sequences of a message are written out.
TEST_F(Launcher, MessagesOfErrorFilesDoNotCommandTheTerminal) {
  const Outcome outcome =
      run({}, R"(printf '{"message":{"message":"\\u001b]0;title\\u0007 \\u001b[2J \\u202e","extraInfo":{}}}' )"
              R"(> $TORCHELASTIC_ERROR_FILE; exit 6)");
  EXPECT_EQ(outcome.status, 6);
  EXPECT_THAT(outcome.errors, HasSubstr("\\x1b]0;title\\x07 \\x1b[2J \\u202e"));
  EXPECT_EQ(outcome.errors.find('\x1b'), std::string::npos);
}

TEST_F(Launcher, ATokenThatOthersCanReadIsWarnedAbout) {
  const std::filesystem::path token = folder_ / "token";
  write_file(token, "secret\n");
  for (const auto& [mode, warned] : {std::pair{0600, false}, {0400, false}, {0644, true}, {0640, true}}) {
    std::filesystem::permissions(token, static_cast<std::filesystem::perms>(mode));
    const Outcome outcome = run({"--rdzv-token-file", token.string()}, "[ $QUENCH_RDZV_TOKEN = secret ]");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.errors.find("chmod 600 " + token.string()) != std::string::npos, warned) << outcome.errors;
  }
}

// D19: what is missing is named.
TEST_F(Launcher, ScarceResourcesAreNamed) {
  const auto limited = [&](const std::string& limit, const std::string& flags, const std::string& script) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string command = "cd '" + folder_.path().string() + "' && exec > stdout.txt 2> stderr.txt && " +
                                  limit + " && exec '" + program_path() + "' run " + flags + " -- /bin/sh -c '" +
                                  script + "'";
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    return finish(child);
  };
  const Outcome files = limited("ulimit -n 16", "--nproc-per-node 8 --tee 3", "true");
  EXPECT_EQ(files.status, 1) << files.errors;
  EXPECT_THAT(files.errors, HasSubstr("Too many open files"));
  const Outcome none = limited("ulimit -n 8", "", "true");
  EXPECT_EQ(none.status, 1) << none.errors;
  EXPECT_THAT(none.errors, HasSubstr("Too many open files (the limit is 8); raise it (ulimit -n)"));
  const Outcome enough = limited("ulimit -n 64", "--nproc-per-node 2 --tee 3", "true");
  EXPECT_EQ(enough.status, 0) << enough.errors;
  EXPECT_EQ(limited("unset HOME", "--nproc-per-node 2", "true").status, 0);
  const Outcome no_folder = limited("TMPDIR=/no/such/folder; export TMPDIR", "", "true");
  EXPECT_EQ(no_folder.status, 1);
  EXPECT_THAT(no_folder.errors, HasSubstr("no folder for temporary files"));
}

// D18: nothing is lost, whatever the bytes.
TEST_F(Launcher, BinaryOutputArrivesWhole) {
  const Outcome outcome = run({"--redirects", "1", "--log-dir", "logs"}, "head -c 3000000 /dev/zero; printf end");
  EXPECT_EQ(outcome.status, 0);
  const std::string log = read_file(only_file("attempt_0/0/stdout.log"));
  EXPECT_EQ(log.size(), 3000003u);
  EXPECT_TRUE(log.ends_with("end"));
}

TEST_F(Launcher, AStopIsPassedOnAndItsStatusIsTheSignals) {
  for (const auto& [signal, status] : {std::pair{SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}, {SIGQUIT, 131}}) {
    const pid_t launcher = start({"--nproc-per-node", "2", "--max-restarts", "3"},
                                 "trap 'touch saved.$RANK; exit 143' TERM INT HUP QUIT; touch ready.$RANK; "
                                 "while :; do sleep 0.02; done");
    ASSERT_TRUE(wait_for_file("ready.0") && wait_for_file("ready.1"));
    ::kill(launcher, signal);
    const Outcome outcome = finish(launcher);
    EXPECT_EQ(outcome.status, status) << outcome.errors;
    for (const char* name : {"saved.0", "saved.1", "ready.0", "ready.1"})
      EXPECT_TRUE(fs::remove(folder_ / name)) << name << " at signal " << signal;
  }
}

TEST_F(Launcher, KillsWhatDoesNotEnd) {
  const Words flags = {"--nproc-per-node", "2", "--shutdown-timeout", "0.5"};
  const std::string stubborn = "trap '' TERM; echo $$ > pid.$RANK; touch ready.$RANK; while :; do sleep 0.02; done";
  pid_t launcher = start(flags, stubborn);
  ASSERT_TRUE(wait_for_file("ready.0") && wait_for_file("ready.1"));
  ::kill(pid_in("pid.0"), SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(finish(launcher).status, 143);
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 2.5);
  EXPECT_TRUE(has_ended(pid_in("pid.0")) && has_ended(pid_in("pid.1")));
  // The same after a failure.
  const Outcome outcome = run(flags, "[ $RANK = 1 ] && exit 6; " + stubborn);
  EXPECT_EQ(outcome.status, 6);
  EXPECT_LT(seconds_, 5);
  EXPECT_TRUE(has_ended(pid_in("pid.0")));
}

TEST_F(Launcher, ASecondStopKillsAtOnce) {
  const pid_t launcher = start({"--nproc-per-node", "1"}, "trap '' INT; touch ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(wait_for_file("ready"));
  ::kill(launcher, SIGINT);
  ::kill(launcher, SIGINT);  // the same request, twice
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_FALSE(has_ended(launcher));
  ::kill(launcher, SIGINT);
  EXPECT_EQ(finish(launcher).status, 130);
}

TEST_F(Launcher, NothingOutlivesAKilledLauncher) {
  const pid_t launcher = start({"--nproc-per-node", "2"},
                               "sleep 300 & echo $! > child.$RANK; echo $$ > pid.$RANK; touch ready.$RANK; wait");
  ASSERT_TRUE(wait_for_file("ready.0") && wait_for_file("ready.1"));
  ::kill(launcher, SIGKILL);
  EXPECT_EQ(finish(launcher).status, 137);
  for (const char* name : {"pid.0", "pid.1", "child.0", "child.1"}) EXPECT_TRUE(ends_within(pid_in(name), 2)) << name;
}

TEST_F(Launcher, AGrandchildThatHoldsTheOutputHoldsNobodyUp) {
  const Outcome outcome = run({"--nproc-per-node", "1", "--tee", "3"}, "sleep 300 & echo $! > child; echo done");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_LT(seconds_, 10);
  EXPECT_THAT(outcome.output, HasSubstr("[default0]:done\n"));
  EXPECT_TRUE(ends_within(pid_in("child"), 2));
}

TEST_F(Launcher, LinesOfWorkersDoNotMix) {
  const Outcome outcome = run({"--nproc-per-node", "3", "--tee", "1", "--role", "r", "--log-dir", "logs"},
                              "for i in $(seq 2000); do printf 'line of '; printf \"rank $RANK\\n\"; done; printf end");
  EXPECT_EQ(outcome.status, 0);
  std::istringstream lines(outcome.output);
  std::string line;
  std::map<std::string, int> counts;
  while (std::getline(lines, line)) ++counts[line];
  EXPECT_EQ(counts.size(), 6u) << outcome.output.substr(0, 500);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank), prefix = "[r" + r + "]:";
    EXPECT_EQ(counts[prefix + "line of rank " + r], 2000);
    EXPECT_EQ(counts[prefix + "end"], 1);
    EXPECT_EQ(read_file(only_file("attempt_0/" + r + "/stdout.log")).size(),
              2000 * std::string("line of rank 0\n").size() + 3);
  }
}

TEST_F(Launcher, SomeRanksOnTheConsole) {
  const Outcome outcome =
      run({"--nproc-per-node", "2", "--local-ranks-filter", "0", "--log-dir", "logs"}, "echo rank $RANK");
  EXPECT_EQ(outcome.output, "rank 0\n");
  EXPECT_EQ(read_file(only_file("attempt_0/1/stdout.log")), "rank 1\n");
}

TEST_F(Launcher, ListensOnLoopbackAlone) {
  const pid_t launcher = start({"--nproc-per-node", "1"}, "touch ready; while [ ! -e go ]; do sleep 0.02; done");
  ASSERT_TRUE(wait_for_file("ready"));
  int listeners = 0;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(launcher) + "/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (!target.starts_with("socket:[")) continue;
    std::istringstream table(read_file("/proc/net/tcp") + read_file("/proc/net/tcp6"));
    std::string line;
    while (std::getline(table, line)) {
      if (line.find(" 0A ") == std::string::npos) continue;
      if (line.find(" " + target.substr(8, target.size() - 9) + " ") == std::string::npos) continue;
      ++listeners;
      EXPECT_THAT(line, HasSubstr(": 0100007F:"));
    }
  }
  EXPECT_EQ(listeners, 1);
  write_file(folder_ / "go", "");
  EXPECT_EQ(finish(launcher).status, 0);
}

TEST_F(Launcher, WrongWordsAreOneLineAndStatus2) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--nproc-per-node", "0"}, "--nproc-per-node: '0' is no number from 1 to 1024, nor gpu, cpu or auto"},
      {{"--nproc-per-node", "many"}, "--nproc-per-node: 'many'"},
      {{"--nnodes", "1:4"}, "--nnodes: 1:4 asks for a number of nodes that changes"},
      {{"--redirects", "9"}, "--redirects: '9' in '9' is none of 0"},
      {{"--tee", "5:1"}, "--tee: '5:1' in '5:1' is no LOCAL_RANK:STREAMS with a rank below 1"},
      {{"--local-ranks-filter", "1"}, "--local-ranks-filter: '1'"},
      {{"--nnodes", "2"}, "--nnodes 2: how do the nodes find each other?"},
      {{"--nnodes", "2", "--standalone"}, "--standalone is for one node"},
      {{"--nnodes", "2", "--master-addr", "127.0.0.1"}, "--node-rank: -1 of 2 nodes"},
      {{"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:70000"},
       "--rdzv-endpoint: port '70000' is no number from 0 to 65535"},
      {{"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-backend", "c10d"}, "port 0 takes a free port"},
      {{"--rdzv-backend", "etcd"}, "--rdzv-backend: 'etcd' is unknown"},
      {{"--rdzv-conf", "x=1"}, "--rdzv-conf: 'x=1' is unknown"},
      {{"--restart-backoff", "5:1"}, "--restart-backoff: '5:1' begins with more than its most"},
      {{"--restart-backoff", "soon"}, "--restart-backoff: 'soon' is no FIRST:MOST in seconds"},
      {{"--nproc-per-node", "gpu"}, "--nproc-per-node gpu: there is no GPU here"},
      {{"--shutdown-timeout", "-1"}, "--shutdown-timeout: -1 is no number of seconds"},
  };
  for (const auto& [flags, message] : cases) {
    const Outcome outcome = run(flags, "touch started");
    EXPECT_EQ(outcome.status, 2) << message << "\n" << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("error: " + message));
  }
  EXPECT_FALSE(fs::exists(folder_ / "started"));
  EXPECT_EQ(run_program(folder_.path(), {"run"}).status, 2);
  EXPECT_EQ(run_program(folder_.path(), {"run", "--typo", "train"}).status, 2);
  EXPECT_EQ(run_program(folder_.path(), {"run", "--help"}).status, 0);
  const Outcome missing = run_program(folder_.path(), {"run", "--", "./no-such-program"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.errors, HasSubstr("cannot start './no-such-program': No such file or directory"));
}

TEST_F(Launcher, VerbsOfTheProgramNeedNoPath) {
  const Outcome outcome = run_program(folder_.path(), {"run", "--nproc-per-node", "2", "train", "no-such-config"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("quench train FAILED"));
  EXPECT_THAT(outcome.errors, HasSubstr("message   : no-such-config: no such file"));
}

TEST_F(Launcher, LogsThatCannotBeWrittenAreNamed) {
  write_file(folder_ / "file", "");
  const Outcome outcome = run({"--log-dir", "file/logs", "--tee", "3"}, "true");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("cannot create a log folder in file/logs"));
}

}  // namespace
}  // namespace quench::testing
