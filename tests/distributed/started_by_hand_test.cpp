// Ranks without a launcher's store: rank 0 serves it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "distributed/store/protocol.h"
#include "distributed/store/socket.h"
#include "tests/distributed/ranks.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

class StartedByHand : public ::testing::Test {
 protected:
  std::unique_ptr<Child> start(int rank, int size, const std::string& token,
                               const std::map<std::string, std::string>& more = {}, int times = 1) const {
    std::map<std::string, std::string> all = {{"RANK", std::to_string(rank)},
                                              {"WORLD_SIZE", std::to_string(size)},
                                              {"LOCAL_RANK", std::to_string(rank)},
                                              {"LOCAL_WORLD_SIZE", std::to_string(size)},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", std::to_string(port_)},
                                              {"QUENCH_STORE", ""},
                                              {"QUENCH_RDZV_TOKEN", token},
                                              {"TORCHELASTIC_RUN_ID", ""},
                                              {"OMP_NUM_THREADS", "1"}};
    for (const auto& [name, value] : more) all[name] = value;
    std::vector<std::string> variables;
    for (const auto& [name, value] : all) variables.push_back(name + "=" + value);
    const std::string late = "'" + group_driver_path() + "' late";
    std::string script = late;
    for (int i = 1; i < times; ++i) script += " && " + late;
    return std::make_unique<Child>(std::vector<std::string>{"/bin/sh", "-c", script}, std::move(variables));
  }
  const int port_ = [] {
    const distributed::Socket socket = distributed::listen_on({"127.0.0.1", 0});
    return distributed::local_port(socket);
  }();
};

TEST_F(StartedByHand, UnequalWorldSizesAreNamedByAllAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto first = start(0, 2, "token"), second = start(1, 3, "token");
  for (const ChildResult& result : {first->wait(), second->wait()}) {
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, ::testing::ContainsRegex("rank [01] was started with world size [23], but another rank "
                                                        "of the same job with world size [23]"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(StartedByHand, AnotherTokenIsNamedAtOnceByItsRankAndByTheOthersAtTheirTimeout) {
  const auto first = start(0, 2, "token", {{"QUENCH_INIT_TIMEOUT", "8"}});
  const auto begin = std::chrono::steady_clock::now();
  const auto second = start(1, 2, "other");
  const ChildResult refused = second->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("has another token (it says: another token)"));
  const ChildResult waiting = first->wait();
  EXPECT_EQ(waiting.status, 1);
  EXPECT_THAT(waiting.output, HasSubstr("1 of 2 ranks did not come within 8 s: rank 1; 1 connection with this job's "
                                        "name and another token: refused, the latest from 127.0.0.1: give all ranks "
                                        "the same QUENCH_RDZV_TOKEN"));
}

// The job's name is public (Slurm's is the job id): who knows it and not the token ends nothing.
TEST_F(StartedByHand, StrangersWhoKnowTheJobsNameEndNoJob) {
  const auto first = start(0, 2, "token");
  const distributed::Endpoint endpoint{"127.0.0.1", port_};
  const auto strange = [&] {
    const distributed::Deadline deadline = distributed::Clock::now() + std::chrono::seconds(20);
    const distributed::Socket socket = distributed::connect_to(endpoint, deadline);
    std::string greeting(distributed::kGreetingBytes, '\0'), answer(sizeof(distributed::Sha256Digest), '\0'), nonce;
    distributed::read_all(socket, greeting.data(), greeting.size(), deadline);
    std::string proof = distributed::encode_proof(distributed::store_secret("token", ""),
                                                  greeting.substr(distributed::kStoreMagic.size()), 1, nonce);
    const std::string guess = distributed::random_bytes(sizeof(distributed::Sha256Digest));
    proof.replace(distributed::kClientNonceBytes, guess.size(), guess);
    distributed::write_all(socket, proof, deadline);
    distributed::read_all(socket, answer.data(), answer.size(), deadline);
    EXPECT_EQ(distributed::decode_refusal(answer), distributed::Refusal::other_token);
  };
  strange();
  std::this_thread::sleep_for(std::chrono::seconds(8));
  for (int i = 0; i < 20; ++i) strange();
  const auto second = start(1, 2, "token");
  EXPECT_EQ(second->wait().status, 0) << second->output();
  EXPECT_EQ(first->wait().status, 0) << first->output();
  EXPECT_THAT(first->output(), HasSubstr("it knows the name of this job and has another token"));
}

// torchrun's agent holds MASTER_PORT; its nodes may count restarts differently.
TEST_F(StartedByHand, RanksOfTorchrunLeaveItsAgentThePort) {
  const distributed::Socket agent = distributed::listen_on({"127.0.0.1", port_});
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(start(rank, 2, "token",
                          {{"TORCHELASTIC_RUN_ID", "none"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RESTART_COUNT", std::to_string(rank)}}));
  for (const auto& rank : ranks) {
    const ChildResult result = rank->wait();
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

// The name of this machine may be loopback here and another address elsewhere.
TEST_F(StartedByHand, RanksOfSeveralNodesMeetAtThisMachinesName) {
  const std::string name = distributed::host_name();
  if (distributed::addresses_of(name).empty()) GTEST_SKIP() << "this machine's name resolves to no address";
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(start(rank, 2, "token", {{"MASTER_ADDR", name}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}));
  for (const auto& rank : ranks) {
    const ChildResult result = rank->wait();
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

// The store of each run ends with its rank 0.
TEST_F(StartedByHand, RanksMeetAgainInTheSameScript) {
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, "token", {}, 3));
  for (const auto& rank : ranks) {
    const ChildResult result = rank->wait();
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

// A refused process is no reason to end where the rank itself comes.
TEST_F(StartedByHand, ARefusedProcessEndsNoJobWhoseRankComes) {
  const auto first = start(0, 2, "token"), refused = start(1, 2, "other");
  EXPECT_EQ(refused->wait().status, 1);
  const auto second = start(1, 2, "token");
  EXPECT_EQ(second->wait().status, 0);
  EXPECT_EQ(first->wait().status, 0) << first->output();
}

}  // namespace
}  // namespace quench::testing
