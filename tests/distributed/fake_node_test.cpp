// Launchers of a node whose node 0 is the test: it knows the job's token and makes no sense.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/system/check.h"
#include "distributed/store/server.h"
#include "distributed/store/store.h"
#include "tests/distributed/child.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

class FakeNode : public ::testing::Test {
 protected:
  void start_launcher(const std::string& program = "true", const std::string& argument = "") {
    launcher_ = std::make_unique<Child>(
        std::vector<std::string>{program_path(), "run", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port",
                                 std::to_string(server_.port()), "--node-rank", "1", "--rdzv-id", "job", "--rdzv-conf",
                                 "join_timeout=2", "--", program, argument},
        std::vector<std::string>{"QUENCH_RDZV_TOKEN=of the test"});
  }
  [[nodiscard]] distributed::Store connect() const {
    return {{"127.0.0.1", server_.port()}, secret_, std::chrono::seconds(5)};
  }
  // The launcher ends soon, not with status 0, and with this message.
  void expect_end(const std::string& message) {
    const auto begin = std::chrono::steady_clock::now();
    const ChildResult result = launcher_->wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr(message));
  }

  const std::string secret_ = distributed::store_secret("of the test", "job");
  const std::string itself_ = R"({"host": "fake", "process": 1, "workers": 1})";
  distributed::StoreServer server_{distributed::listen_on({"127.0.0.1", 0}), secret_, 64};
  std::unique_ptr<Child> launcher_;
};

TEST_F(FakeNode, ThatDoesNotSayWhereItsRanksAreIsNamed) {
  connect().set("rdzv/0/node/0", itself_);
  start_launcher();
  expect_end(fmt::format("node 0 (fake) has come to 127.0.0.1:{} and does not say within 2 s", server_.port()));
}

TEST_F(FakeNode, ThatIsNoLauncherIsNamed) {
  connect().set("rdzv/0/node/0", R"({"host": "fake", "process": 1, "workers": 0})");
  start_launcher();
  expect_end("node 0 of this job is no launcher of this version of quench");
}

TEST_F(FakeNode, ThatFailsAgainAndAgainHoldsNoLauncherLongerThanTheJoinTimeout) {
  std::atomic<bool> done{false};
  std::thread fake([&] {
    distributed::Store store = connect();
    for (int round = 0; !done; ++round) {
      while (!done && !store.wait(fmt::format("rdzv/{}/node/1", round), std::chrono::milliseconds(100))) {
      }
      store.set(fmt::format("rdzv/{}/failed", round), "{}");
    }
  });
  start_launcher();
  expect_end(fmt::format("no attempt of job 'job' on 127.0.0.1:{} has begun within 2 s", server_.port()));
  done = true;
  fake.join();
}

TEST_F(FakeNode, ThatIsNeverDoneAndSilentIsLost) {
  distributed::Store store = connect();
  store.set("rdzv/0/node/0", itself_);
  store.set("rdzv/0/master", "127.0.0.1:1");
  start_launcher();
  expect_end("the launcher of node 0 has come and has given no sign of life for 2 s");
}

TEST_F(FakeNode, ThatIsSilentWhileTheOthersWorkIsLost) {
  distributed::Store store = connect();
  store.set("rdzv/0/node/0", itself_);
  store.set("rdzv/0/master", "127.0.0.1:1");
  start_launcher("sleep", "60");
  expect_end("the launcher of node 0 has come and has given no sign of life for 2 s");
}

}  // namespace
}  // namespace quench::testing
