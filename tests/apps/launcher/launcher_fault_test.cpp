// quench run where something is in the way: ports, names, strangers, full disks, limits.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "tests/apps/launcher/launcher.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class LauncherFault : public Launcher {
 protected:
  // quench run FLAGS -- /bin/sh -c SCRIPT after shell commands.
  Outcome run_behind(const std::string& commands, const std::string& flags, const std::string& script) {
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string line = "cd '" + folder_.path().string() + "' && exec > stdout.txt 2> stderr.txt && " +
                               commands + " && exec '" + program_path() + "' run " + flags + " -- /bin/sh -c '" +
                               script + "'";
      ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
    return finish(child);
  }
  // The program itself, not the workers' shells, under the fault shim.
  Outcome run_with_fault(const std::string& fault, const std::string& flags, const std::string& script) {
    return run_behind("export LD_PRELOAD='" + fault_shim_path() + "' QUENCH_FAULT='" + fault + "'", flags,
                      "unset LD_PRELOAD; " + script);
  }
};

// D8
TEST_F(LauncherFault, EndpointsThatCannotServeAreOneErrorAndStatus2) {
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const std::string in_use =
      "cannot listen on 127.0.0.1:" + port + ": Address already in use by process " + std::to_string(::getpid());
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:" + port}, in_use},
      {{"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", port}, in_use},
      {{"--nnodes", "2", "--rdzv-endpoint", "no-such-host.invalid:29400", "--rdzv-conf", "join_timeout=1"},
       "cannot reach no-such-host.invalid:29400: "},
      {{"--nnodes", "2", "--rdzv-endpoint", "[::1]:0"}, "port 0 takes a free port that other nodes cannot know"},
      {{"--master-port", "70000"}, "--master-port: 70000 is no number from 0 to 65535"},
  };
  for (const auto& [flags, message] : cases) {
    const Outcome outcome = run(flags, "touch started");
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_LT(seconds_, 10) << message;
    const std::size_t error = outcome.errors.find("error: ");
    ASSERT_NE(error, std::string::npos) << message;
    EXPECT_TRUE(outcome.errors.substr(error + 7).starts_with(message)) << outcome.errors;
    EXPECT_EQ(outcome.errors.find('\n', error), outcome.errors.size() - 1) << outcome.errors;  // the last line
  }
  ::close(taken);
  EXPECT_FALSE(fs::exists(folder_ / "started"));
  if (fs::exists("/proc/net/if_inet6")) {
    EXPECT_EQ(run({"--rdzv-endpoint", "[::1]:0"}, "touch started").status, 0);
    EXPECT_TRUE(fs::exists(folder_ / "started"));
  }
}

// D10: the job continues, and the launcher takes no more memory.
TEST_F(LauncherFault, StrangersAtTheStoresPortCostNothing) {
  const pid_t launcher = start({"--nproc-per-node", "2"},
                               "echo ${QUENCH_STORE##*:} > port.$RANK; touch ready.$RANK; "
                               "while [ ! -e go ]; do sleep 0.02; done; exit 0");
  ASSERT_TRUE(wait_for_file("ready.0") && wait_for_file("ready.1"));
  const sockaddr_in address = loopback(pid_in("port.0"));
  const auto resident_pages = [&] {
    long pages = 0;
    std::istringstream(read_file("/proc/" + std::to_string(launcher) + "/statm")) >> pages >> pages;
    return pages;
  };
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n" + std::string(5000, '\xff');
  std::vector<int> open(100, -1);
  long before = 0;
  for (std::size_t i = 0; i < 3000; ++i) {
    int& stranger = open[i % open.size()];
    if (stranger >= 0) ::close(stranger);
    stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(stranger, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    if (i % 2 == 0) [[maybe_unused]]
      const ssize_t sent = ::send(stranger, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    if (i == 300) before = resident_pages();
  }
  EXPECT_GT(before, 0);
  EXPECT_LT((resident_pages() - before) * ::sysconf(_SC_PAGESIZE), 16 << 20);
  // Until the store has read the last garbage, answered and closed the connection.
  for (std::array<char, 256> answer{}; ::recv(open[2998 % open.size()], answer.data(), answer.size(), 0) > 0;) {
  }
  for (const int stranger : open) ::close(stranger);
  write_file(folder_ / "go", "");
  const Outcome outcome = finish(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  // They are said, not one by one.
  EXPECT_THAT(outcome.errors, HasSubstr("store: connection from 127.0.0.1 closed: "));
  EXPECT_LT(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 100);
}

// D17: variables that leave no GPU, on any machine.
TEST_F(LauncherFault, WhatHidesTheGpusIsNamed) {
  for (const std::string hidden : {"", "-1", "none"}) {
    const Outcome outcome =
        run_behind("export CUDA_VISIBLE_DEVICES=" + hidden, "--nproc-per-node gpu", "touch started");
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("error: --nproc-per-node gpu: there is no GPU here ("));
    EXPECT_THAT(outcome.errors, HasSubstr("; CUDA_VISIBLE_DEVICES=" + hidden + ")\n"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "started"));
}

// D18
TEST_F(LauncherFault, EachStreamOfEachRankGoesWhereItIsSent) {
  const Outcome outcome =
      run({"--nproc-per-node", "2", "--tee", "0:1,1:2", "--redirects", "0:2,1:1", "--log-dir", "logs"},
          "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "[default0]:out 0\n");
  EXPECT_EQ(outcome.errors, "[default1]:err 1\n");
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(read_file(only_file(std::string("attempt_0/") + rank + "/stdout.log")),
              std::string("out ") + rank + "\n");
    EXPECT_EQ(read_file(only_file(std::string("attempt_0/") + rank + "/stderr.log")),
              std::string("err ") + rank + "\n");
  }
}

TEST_F(LauncherFault, AFullDiskEndsALogAndNotTheRun) {
  const Outcome outcome =
      run_with_fault("do=ENOSPC;ops=write;sticky;at=3;path=0/stdout.log", "--nproc-per-node 2 --tee 1 --log-dir logs",
                     "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.05; done");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors,
              HasSubstr("/0/stdout.log: No space left on device; the log ends here, the run continues"));
  EXPECT_EQ(outcome.errors.find("No space"), outcome.errors.rfind("No space"));
  for (const char* rank : {"0", "1"})
    EXPECT_THAT(outcome.output, HasSubstr(std::string("[default") + rank + "]:line 6\n"));
  EXPECT_EQ(read_file(only_file("attempt_0/1/stdout.log")), "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n");
}

TEST_F(LauncherFault, AConsoleThatTakesNothingHoldsNobodyUp) {
  int console[2];
  ASSERT_EQ(::pipe2(console, O_CLOEXEC), 0);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::dup2(console[1], STDOUT_FILENO);
    if (::chdir(folder_.path().c_str()) != 0) ::_exit(126);
    const std::string script = "head -c 30000000 /dev/zero | tr \"\\0\" x | fold -w 99; echo end";
    ::execl(program_path().c_str(), "quench", "run", "--tee", "1", "--log-dir", "logs", "--", "/bin/sh", "-c",
            script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(console[1]);
  int status = -1;
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 60);
  ::close(console[0]);
  const std::string log = read_file(only_file("attempt_0/0/stdout.log"));
  EXPECT_EQ(log.size(), 30'000'000u + 30'000'000u / 99u + std::string("end\n").size());
  EXPECT_TRUE(log.ends_with("xend\n")) << log.substr(log.size() - 20);
}

// D19
TEST_F(LauncherFault, AFullTemporaryFolderIsNamed) {
  const Outcome folders = run_with_fault("do=ENOSPC;ops=mkdir;path=quench-run", "", "true");
  EXPECT_EQ(folders.status, 1);
  EXPECT_THAT(folders.errors, HasSubstr("error: cannot create the log folder " + fs::temp_directory_path().string()));
  EXPECT_THAT(folders.errors, HasSubstr("No space left on device"));
  const Outcome files = run_with_fault("do=ENOSPC;ops=create;path=quench-run", "--tee 3", "true");
  EXPECT_EQ(files.status, 1);
  EXPECT_THAT(files.errors, HasSubstr("/attempt_0/0/stdout.log: No space left on device"));
}

TEST_F(LauncherFault, ALogFolderThatMayNotBeMadeIsNamedWithTheReason) {
  const Outcome outcome = run_with_fault("do=EACCES;ops=mkdir;path=logs", "--log-dir logs", "true");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("error: cannot create a log folder in logs: Permission denied"));
}

TEST_F(LauncherFault, AWorkingFolderThatIsGoneMattersToRelativePathsAlone) {
  const std::string leave = "mkdir gone && cd gone && rmdir ../gone";
  EXPECT_EQ(run_behind(leave, "--nproc-per-node 2", "exit 0").status, 0);
  const Outcome logs = run_behind(leave, "--log-dir logs", "exit 0");
  EXPECT_EQ(logs.status, 1);
  EXPECT_THAT(logs.errors, HasSubstr("error: cannot create a log folder in logs: No such file or directory"));
}

// Between processes of a machine everything goes over the loopback.
TEST_F(LauncherFault, TrainingNeedsNoSharedMemory) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount an empty /dev/shm";
  write_tiny_run(folder_.path());
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    const std::string line = "cd '" + folder_.path().string() + "' && exec > stdout.txt 2> stderr.txt && " +
                             "mount -t tmpfs -o ro,size=4k none /dev/shm && exec '" + program_path() +
                             "' run --nproc-per-node 2 train run.json --device=cpu --run.folder=run";
    ::execlp("unshare", "unshare", "-m", "/bin/sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  const Outcome outcome = finish(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoints/step-2/manifest.json"));
}

TEST_F(LauncherFault, TheLimitOfProcessesIsNamed) {
  // A user of its own that has no processes; limits do not hold for root.
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to take another user";
  constexpr uid_t kNobody = 61'234;
  fs::permissions(folder_.path(), fs::perms::all);
  const fs::path program = folder_ / "quench";
  fs::copy_file(program_path(), program);
  int named = 0;
  for (const rlim_t processes : {1, 2, 3, 4, 6}) {
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      const rlimit limit{processes, processes};
      const int errors = ::open((folder_ / "stderr.txt").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(errors, STDERR_FILENO);
      if (::setrlimit(RLIMIT_NPROC, &limit) != 0 || ::setuid(kNobody) != 0) ::_exit(126);
      ::execl(program.c_str(), "quench", "run", "--nproc-per-node", "4", "--", "/bin/sleep", "30", nullptr);
      ::_exit(127);
    }
    const Outcome outcome = finish(launcher);
    EXPECT_EQ(outcome.status, 1) << processes << ": " << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("Resource temporarily unavailable; raise the limit of processes and threads "
                                          "(ulimit -u)"))
        << processes;
    named += outcome.errors.find("cannot start a thread") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(named, 1) << "the store's thread is among what cannot be started";
}

}  // namespace
}  // namespace quench::testing
