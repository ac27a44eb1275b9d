#pragma once
// Starts the ranks of a test: processes on this machine that find each other through a store of the test.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/system/check.h"
#include "distributed/store/server.h"
#include "distributed/store/store.h"
#include "tests/distributed/child.h"

namespace quench::testing {

inline constexpr const char* kTestToken = "a token of the tests";
inline constexpr const char* kTestJob = "test";

class Ranks {
 public:
  // The store serves on loopback, on a free port.
  explicit Ranks(int count)
      : count_(count),
        server_(std::make_unique<distributed::StoreServer>(distributed::listen_on({"127.0.0.1", 0}),
                                                           distributed::store_secret(kTestToken, kTestJob), 64)) {}

  // Launcher's variables for one rank.
  [[nodiscard]] std::vector<std::string> variables(int rank) const {
    return {fmt::format("RANK={}", rank),
            fmt::format("WORLD_SIZE={}", count_),
            fmt::format("LOCAL_RANK={}", rank),
            fmt::format("LOCAL_WORLD_SIZE={}", count_),
            fmt::format("QUENCH_STORE=127.0.0.1:{}", server_->port()),
            std::string("QUENCH_RDZV_TOKEN=") + kTestToken,
            std::string("TORCHELASTIC_RUN_ID=") + kTestJob,
            "OMP_NUM_THREADS=1"};
  }
  void start(int rank, std::vector<std::string> command, const std::vector<std::string>& more_variables = {}) {
    std::vector<std::string> all = variables(rank);
    all.insert(all.end(), more_variables.begin(), more_variables.end());
    children_.push_back(std::make_unique<Child>(std::move(command), std::move(all)));
  }
  // group_driver SCENARIO OPTION... on every rank.
  void start_all(const std::string& scenario, const std::vector<std::string>& options = {}) {
    std::vector<std::string> command = {group_driver_path(), scenario};
    command.insert(command.end(), options.begin(), options.end());
    for (int rank = 0; rank < count_; ++rank) start(rank, command);
  }
  [[nodiscard]] Child& operator[](int index) { return *children_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] int port() const { return server_->port(); }

  std::vector<ChildResult> wait() {
    std::vector<ChildResult> results;
    for (const auto& child : children_) results.push_back(child->wait());
    return results;
  }
  // All of them end with status 0.
  void expect_success() {
    int index = 0;
    for (const ChildResult& result : wait())
      EXPECT_EQ(result.status, 0) << "process " << index++ << ": " << result.output;
  }

 private:
  int count_;
  std::unique_ptr<distributed::StoreServer> server_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace quench::testing
