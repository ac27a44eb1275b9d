// Saves by two processes of which one dies, or has no space left, at any of its calls to the file system.

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <thread>

#include "tests/distributed/ranks.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

class SaveFault : public ::testing::Test {
 protected:
  static constexpr int kSteps = 2;  // the second save deletes the first

  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text\n";
    write_file(folder_ / "text.txt", text);
    write_file(folder_ / "run.json", R"({"model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 8,
        "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 64},
      "data": {"train": [")" + (folder_ / "text.txt").string() +
                                         R"("], "tokenizer": "bytes", "seq_len": 16},
      "training": {"steps": )" + std::to_string(kSteps) +
                                         R"(, "micro_batch_size": 1, "global_batch_size": 2, "dtype": "f32"},
      "checkpoint": {"interval": 1, "keep_latest": 1},
      "metrics": {"log_every": 1, "tensorboard": false}})");
  }

  // Two processes train into `name`; rank `faulty` under QUENCH_FAULT=fault.
  std::vector<ChildResult> train(const std::string& name, int faulty = -1, const std::string& fault = {},
                                 const std::vector<std::string>& more = {}) {
    std::array<std::string, 2> faults;
    if (faulty >= 0) faults[static_cast<std::size_t>(faulty)] = fault;
    return train_under(faults, name, more);
  }

  // A fault for each rank; empty: none.
  std::vector<ChildResult> train_under(const std::array<std::string, 2>& faults, const std::string& name,
                                       const std::vector<std::string>& more = {}) {
    testing::Ranks ranks(2);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::string> command = {testing::program_path(), "train", (folder_ / "run.json").string(),
                                          "--device=cpu", "--run.folder=" + (folder_ / name).string()};
      command.insert(command.end(), more.begin(), more.end());
      const std::string& fault = faults[static_cast<std::size_t>(rank)];
      ranks.start(rank, command,
                  fault.empty() ? std::vector<std::string>{}
                                : std::vector<std::string>{"LD_PRELOAD=" + std::string(testing::fault_shim_path()),
                                                           "QUENCH_FAULT=" + fault});
    }
    return ranks.wait();
  }

  // Steps with a checkpoint; every one of them is whole.
  std::vector<int> whole_steps(const std::string& name) {
    std::vector<int> steps;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder_ / name / "checkpoints", none)) {
      const std::string file = entry.path().filename().string();
      if (!file.starts_with("step-") || file.find(".tmp-") != std::string::npos) continue;
      testing::Child verifier({testing::program_path(), "inspect", entry.path().string(), "--verify"}, {});
      const ChildResult verified = verifier.wait();
      EXPECT_EQ(verified.status, 0) << verified.output;
      steps.push_back(std::stoi(file.substr(5)));
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  // Rank `rank` dies at call number `call` of those on checkpoints. False when it had fewer.
  bool survive_death(int rank, int call) {
    const std::string name = fmt::format("dies-{}-{}", rank, call);
    const std::vector<ChildResult> results = train(name, rank, fmt::format("do=kill;at={};path=/checkpoints", call));
    const int status = results[static_cast<std::size_t>(rank)].status;
    const ChildResult& other = results[static_cast<std::size_t>(1 - rank)];
    if (status == 0) {
      EXPECT_EQ(other.status, 0) << name << ": " << other.output;
      return false;
    }
    EXPECT_EQ(status, 137) << results[static_cast<std::size_t>(rank)].output;
    const std::vector<int> saved = whole_steps(name);
    // After the last save rank 0 deletes what is not kept and releases its lock, alone. The other waits for nothing
    // then, and ends well: with all that the run was to save.
    if (other.status == 0)
      EXPECT_THAT(saved, ::testing::Contains(kSteps)) << name << ": " << other.output;
    else
      EXPECT_EQ(other.status, 1) << name << ": " << other.output;
    for (const ChildResult& again : train(name)) EXPECT_EQ(again.status, 0) << name << ": " << again.output;
    EXPECT_THAT(whole_steps(name), ::testing::Contains(kSteps)) << name;
    // Nothing half-written or half-deleted; what the run went on from is kept.
    for (const auto& entry : fs::directory_iterator(folder_ / name / "checkpoints"))
      EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("step-1", "step-2", "LATEST", ".lock")) << name;
    fs::remove_all(folder_ / name);
    return true;
  }

  TempDir folder_;
};

// A few moments of it.
TEST_F(SaveFault, ARankThatDiesInASaveLeavesWholeCheckpoints) {
  for (const int call : {3, 7}) EXPECT_TRUE(survive_death(1, call)) << call;
  for (const int call : {12, 25}) EXPECT_TRUE(survive_death(0, call)) << call;
}

// Each of them, several deaths at once: a run that loses a rank mostly waits.
class SaveFaultSlow : public SaveFault {
 protected:
  // Returns the number of calls.
  int survive_every_death(int rank) {
    constexpr int kAtOnce = 4;
    std::atomic<int> next{1}, survived{0}, first_beyond{std::numeric_limits<int>::max()};
    std::vector<std::thread> tries;
    for (int i = 0; i < kAtOnce; ++i)
      tries.emplace_back([&] {
        int call = next++;
        for (; survive_death(rank, call); call = next++) ++survived;
        for (int least = first_beyond; call < least && !first_beyond.compare_exchange_weak(least, call);) {
        }
      });
    for (std::thread& one : tries) one.join();
    EXPECT_EQ(survived, first_beyond - 1) << "a call was left out";
    return survived;
  }
};

TEST_F(SaveFaultSlow, AFirstRankThatDiesAtAnyCallLeavesWholeCheckpoints) {
  EXPECT_GT(survive_every_death(0), 100);
}
TEST_F(SaveFaultSlow, AnotherRankThatDiesAtAnyCallLeavesWholeCheckpoints) {
  EXPECT_GT(survive_every_death(1), 12);
}

TEST_F(SaveFault, ADiskThatIsFullForOneRankIsFullForAll) {
  const std::vector<ChildResult> results = train("full", 1, "do=ENOSPC;at=2;sticky;ops=fallocate,write;path=rank-00001",
                                                 {"--checkpoint.on_save_error=stop"});
  for (const ChildResult& result : results) {
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, HasSubstr("No space left on device"));
    EXPECT_THAT(result.output, HasSubstr("rank-00001"));
  }
  for (const int step : whole_steps("full")) EXPECT_LT(step, kSteps);
  for (const ChildResult& again : train("full")) EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(whole_steps("full"), ::testing::Contains(kSteps));
}

// An input/output error alone is retried: with a full disk on another rank it is not, on either.
TEST_F(SaveFault, DifferentErrorsOfTwoRanksAreOneFailedSave) {
  const std::vector<ChildResult> results =
      train_under({"do=EIO;at=1;ops=fallocate;path=rank-00000", "do=ENOSPC;at=1;ops=fallocate;path=rank-00001"},
                  "different", {"--checkpoint.on_save_error=continue"});
  for (const ChildResult& result : results) {
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr("1 of 2 checkpoints could not be saved"));
  }
  EXPECT_THAT(whole_steps("different"), ::testing::ElementsAre(kSteps));
}

// A network file system may show one process fewer checkpoints than another.
TEST_F(SaveFault, ACheckpointThatOneRankDoesNotListIsResumedByAll) {
  const std::vector<std::string> keep{"--checkpoint.keep_latest=0"};
  for (const ChildResult& result : train("stale", -1, {}, keep)) EXPECT_EQ(result.status, 0) << result.output;
  const std::vector<ChildResult> results =
      train("stale", 1, "do=EIO;ops=list;path=/checkpoints/step-2", {keep[0], "--training.steps=4"});
  for (const ChildResult& result : results) EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(results[0].output, HasSubstr("checkpoints/step-2: step 2, "));
  EXPECT_THAT(whole_steps("stale"), ::testing::ElementsAre(1, 2, 3, 4));
}

TEST_F(SaveFault, AnErrorThatIsRetriedLeavesNoTrace) {
  const std::vector<ChildResult> results = train_under(
      {"do=EIO;at=1;ops=fallocate;path=rank-00000", "do=EIO;at=1;ops=fallocate;path=rank-00001"}, "retried");
  for (const ChildResult& result : results) {
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("is retried once"));
  }
  EXPECT_THAT(whole_steps("retried"), ::testing::ElementsAre(kSteps));
}

}  // namespace
}  // namespace quench
