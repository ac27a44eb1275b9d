// quench run on several "nodes": launchers on this machine that meet at an endpoint.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "distributed/store/socket.h"
#include "tests/apps/launcher/launcher.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

// Free a moment ago.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

class LauncherNodes : public ::testing::Test {
 protected:
  // Starts node i, in a folder of its own, with these flags after the common ones.
  void start(const Words& flags, const std::string& script, const std::string& workers = "1") {
    folders_.push_back(std::make_unique<TempDir>());
    Words words = {"run", "--nnodes", "2", "--nproc-per-node", workers};
    words.insert(words.end(), flags.begin(), flags.end());
    if (std::find(flags.begin(), flags.end(), "--rdzv-conf") == flags.end())
      words.insert(words.end(), {"--rdzv-conf", "join_timeout=20"});
    for (const std::string& word : Words{"--", "/bin/sh", "-c", script}) words.push_back(word);
    launchers_.push_back(start_program(folders_.back()->path(), words));
  }
  [[nodiscard]] Words endpoint() const { return {"--rdzv-endpoint", "127.0.0.1:" + port_, "--rdzv-id", "job"}; }
  Outcome finish(std::size_t node) { return finish_program(folders_[node]->path(), launchers_[node]); }
  [[nodiscard]] std::string file(std::size_t node, const std::string& name) const {
    return read_file(*folders_[node] / name);
  }
  [[nodiscard]] bool wait_for_file(std::size_t node, const std::string& name) const {
    for (int i = 0; i < 2000 && !std::filesystem::exists(*folders_[node] / name); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::filesystem::exists(*folders_[node] / name);
  }

  void SetUp() override { ::setenv("QUENCH_RDZV_TOKEN", "of the test", 1); }
  void TearDown() override { ::unsetenv("QUENCH_RDZV_TOKEN"); }

  std::string port_ = std::to_string(free_port());
  std::vector<std::unique_ptr<TempDir>> folders_;
  std::vector<pid_t> launchers_;
};

constexpr const char* kSay =
    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE > out.$RANK";

TEST_F(LauncherNodes, MeetAtAnEndpoint) {
  start(endpoint(), kSay, "1");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  start(endpoint(), kSay, "2");
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
  EXPECT_EQ(file(0, "out.0"), "0/3 0/1 0/2\n");
  EXPECT_EQ(file(1, "out.1"), "1/3 0/2 1/2\n");
  EXPECT_EQ(file(1, "out.2"), "2/3 1/2 1/2\n");
}

// A name may be loopback on its own machine alone: other nodes get an address that they reach.
TEST_F(LauncherNodes, GiveTheOthersAnAddressFromOutside) {
  const std::string name = distributed::host_name();
  const std::vector<std::string> own = distributed::own_addresses();
  const bool is_alone = std::all_of(own.begin(), own.end(), distributed::is_loopback);
  if (distributed::addresses_of(name).empty() || is_alone) GTEST_SKIP() << "a machine without a name or a network";
  const Words flags = {"--rdzv-endpoint", name + ":" + port_, "--rdzv-id", "job"};
  for (int node = 0; node < 2; ++node) start(flags, "echo $MASTER_ADDR > out");
  for (std::size_t node = 0; node < 2; ++node) {
    EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
    const std::string address = file(node, "out").substr(0, file(node, "out").find('\n'));
    EXPECT_FALSE(distributed::is_loopback(address)) << address;
    EXPECT_NE(std::find(own.begin(), own.end(), address), own.end()) << address;
  }
  start(endpoint(), "echo $MASTER_ADDR > out");
  start(endpoint(), "echo $MASTER_ADDR > out");
  for (std::size_t node = 2; node < 4; ++node) {
    EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
    EXPECT_EQ(file(node, "out"), "127.0.0.1\n");
  }
}

TEST_F(LauncherNodes, MeetByTheirNumbers) {
  const Words master = {"--master-addr", "127.0.0.1", "--master-port", port_};
  Words first = master, second = master;
  first.insert(first.end(), {"--node-rank", "1"});
  second.insert(second.end(), {"--node-rank", "0"});
  start(first, kSay, "2");  // waits for the one that serves
  start(second, kSay, "1");
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
  EXPECT_EQ(file(1, "out.0"), "0/3 0/1 0/2\n");
  EXPECT_EQ(file(0, "out.2"), "2/3 1/2 1/2\n");
}

TEST_F(LauncherNodes, AFailureEndsAllNodesWithItsStatus) {
  const std::string script = "touch ready; [ $RANK = 1 ] && exit 7; sleep 60";
  start(endpoint(), script);
  start(endpoint(), script);
  for (std::size_t node = 0; node < 2; ++node) {
    const Outcome outcome = finish(node);
    EXPECT_EQ(outcome.status, 7) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("rank      : 1 (local_rank: 0, node: 1)"));
  }
}

TEST_F(LauncherNodes, ARankThatEndsBeforeAllHaveMetEndsThoseOfOtherNodesSoon) {
  const TempDir data;
  write_tiny_run(data.path());
  const auto begin = std::chrono::steady_clock::now();
  for (int node = 0; node < 2; ++node)
    start(endpoint(), "[ $RANK = 1 ] && exit 0; cd '" + data.path().string() + "'; exec '" + program_path() +
                          "' train run.json --device=cpu --run.folder=run");
  std::string errors;
  for (std::size_t node = 0; node < 2; ++node) {
    const Outcome outcome = finish(node);
    EXPECT_EQ(outcome.status, 1) << outcome.errors;
    errors += outcome.errors;
  }
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 20);
  EXPECT_THAT(errors, HasSubstr("rank 1 has ended with status 0 before all ranks had met"));
}

TEST_F(LauncherNodes, RestartTogether) {
  Words flags = endpoint();
  flags.insert(flags.end(), {"--max-restarts", "2"});
  const std::string script =
      "echo $TORCHELASTIC_RESTART_COUNT >> attempts; [ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && exit 3; "
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 60; exit 0";
  start(flags, script);
  start(flags, script);
  for (std::size_t node = 0; node < 2; ++node) {
    EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
    EXPECT_EQ(file(node, "attempts"), "0\n1\n");
  }
}

TEST_F(LauncherNodes, ANodeThatDiesIsReplaced) {
  Words flags = endpoint();
  flags.insert(flags.end(), {"--max-restarts", "1"});
  const std::string script = "touch ready; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60";
  start(flags, script);
  ASSERT_TRUE([&] {  // the first one serves the store
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    start(flags, script);
    return wait_for_file(0, "ready") && wait_for_file(1, "ready");
  }());
  ::kill(launchers_[1], SIGKILL);
  EXPECT_EQ(finish(1).status, 137);
  start(flags, script);
  EXPECT_EQ(finish(0).status, 0) << file(0, "stderr.txt");
  EXPECT_EQ(finish(2).status, 0) << file(2, "stderr.txt");
  EXPECT_THAT(file(0, "stderr.txt"), HasSubstr("is gone"));
}

TEST_F(LauncherNodes, TheStoresEndEndsTheOthers) {
  const std::string script = "touch ready; sleep 60";
  start(endpoint(), script);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  start(endpoint(), script);
  ASSERT_TRUE(wait_for_file(0, "ready") && wait_for_file(1, "ready"));
  ::kill(launchers_[0], SIGKILL);
  EXPECT_EQ(finish(0).status, 137);
  const Outcome other = finish(1);
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.errors, HasSubstr("the job's store is lost"));
}

TEST_F(LauncherNodes, WhoDoesNotComeIsMissed) {
  start(endpoint(), kSay);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ::kill(launchers_[0], SIGTERM);  // a launcher that waits can be stopped
  EXPECT_EQ(finish(0).status, 143);
  Words flags = endpoint();
  flags.insert(flags.end(), {"--rdzv-conf", "join_timeout=1"});
  start(flags, kSay);
  const Outcome outcome = finish(1);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("1 of 2 nodes came to 127.0.0.1:" + port_ + " within 1 s: node 0 ("));
}

TEST_F(LauncherNodes, StrangersAreRefused) {
  start(endpoint(), "touch ready; while [ ! -e go ]; do sleep 0.02; done");
  start(endpoint(), "touch ready; while [ ! -e go ]; do sleep 0.02; done");
  ASSERT_TRUE(wait_for_file(0, "ready") && wait_for_file(1, "ready"));
  start({"--rdzv-endpoint", "127.0.0.1:" + port_, "--rdzv-id", "another"}, "true");
  const Outcome another = finish(2);
  EXPECT_EQ(another.status, 2);
  EXPECT_THAT(another.errors, HasSubstr("belongs to another job or has another token"));
  start({"--rdzv-endpoint", "127.0.0.1:" + port_, "--rdzv-id", "job", "--rdzv-conf", "join_timeout=1"}, "true");
  folders_.push_back(std::make_unique<TempDir>());
  launchers_.push_back(start_program(
      folders_.back()->path(),
      {"run", "--nnodes", "3", "--rdzv-endpoint", "127.0.0.1:" + port_, "--rdzv-id", "job", "--", "true"}));
  const Outcome count = finish(4);
  EXPECT_EQ(count.status, 2);
  EXPECT_THAT(count.errors, HasSubstr("this node was started with --nnodes 3, the first one with --nnodes 2"));
  const Outcome full = finish(3);
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.errors, HasSubstr("has all its 2 nodes already"));
  for (std::size_t node = 0; node < 2; ++node) write_file(*folders_[node] / "go", "");
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
}

// Another process has bound the port when the nodes start, and frees it later.
TEST_F(LauncherNodes, APortThatIsFreeLaterIsServedThen) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port_)));
  const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(other, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (int node = 0; node < 2; ++node) start(endpoint(), kSay, "2");
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
  ::close(other);
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
}

// Connections that come all the time, and stay: more than the store has places for.
TEST_F(LauncherNodes, StrangersThatKeepComingHoldNoNodeUp) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port_)));
  std::atomic<bool> done{false};
  std::thread strangers([&] {
    std::vector<int> open(400, -1);
    for (std::size_t next = 0; !done; next = (next + 1) % open.size()) {
      if (open[next] >= 0) ::close(open[next]);
      open[next] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      ::connect(open[next], reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    for (const int socket : open) ::close(socket);
  });
  Words flags = endpoint();
  flags.insert(flags.end(), {"--rdzv-conf", "join_timeout=60"});
  for (int node = 0; node < 2; ++node) start(flags, kSay, "2");
  for (std::size_t node = 0; node < 2; ++node) EXPECT_EQ(finish(node).status, 0) << file(node, "stderr.txt");
  done = true;
  strangers.join();
}

TEST_F(LauncherNodes, TheSameNumberTwiceIsRefused) {
  const Words flags = {"--master-addr", "127.0.0.1", "--master-port", port_, "--node-rank", "0"};
  start(flags, kSay);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  start(flags, kSay);
  const Outcome second = finish(1);
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.errors, HasSubstr("cannot listen on 127.0.0.1:" + port_));
  EXPECT_THAT(second.errors, HasSubstr("by process " + std::to_string(launchers_[0])));
  ::kill(launchers_[0], SIGTERM);
  EXPECT_EQ(finish(0).status, 143);
}

}  // namespace
}  // namespace quench::testing
