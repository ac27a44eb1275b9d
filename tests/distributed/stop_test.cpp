// SIGTERM to one of two processes that train, at chosen moments of a step and of a save: both save the same step, once.

#include <gmock/gmock.h>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ShardedTraining;

class StoppedRank : public ShardedTraining {
 protected:
  // Two processes; `stopped` runs under QUENCH_FAULT=fault and writes the number of its counted calls.
  std::vector<ChildResult> run(const std::string& name, int stopped, const std::string& fault,
                               const std::vector<std::string>& more) {
    testing::Ranks ranks(2);
    std::vector<std::string> command = {testing::program_path(), "train", (folder_ / "run.json").string(),
                                        "--device=cpu", "--run.folder=" + (folder_ / name).string()};
    command.insert(command.end(), more.begin(), more.end());
    for (int rank = 0; rank < 2; ++rank)
      ranks.start(rank, command,
                  rank == stopped
                      ? std::vector<std::string>{"LD_PRELOAD=" + testing::fault_shim_path(), "QUENCH_FAULT=" + fault,
                                                 "QUENCH_FAULT_COUNT=" + (folder_ / "count").string()}
                      : std::vector<std::string>{});
    return ranks.wait();
  }
  // Kernels that a process starts in so many steps, from its own start on.
  long kernels(int steps) {
    const std::string name = fmt::format("calm{}", steps);
    for (const ChildResult& result :
         run(name, 1, "do=none;ops=parallel", {fmt::format("--training.steps={}", steps), "--checkpoint.enable=false"}))
      EXPECT_EQ(result.status, 0) << result.output;
    return std::atol(read_file(folder_ / "count").c_str());
  }
  // Both have ended by the signal, with whole checkpoints; returns their steps.
  std::vector<int> expect_stopped(const std::string& name, const std::vector<ChildResult>& results) {
    for (const ChildResult& result : results) EXPECT_EQ(result.status, 128 + SIGTERM) << name << ": " << result.output;
    std::vector<int> steps;
    for (const auto& entry : fs::directory_iterator(folder_ / name / "checkpoints")) {
      const std::string file = entry.path().filename().string();
      if (file == "LATEST" || file == ".lock") continue;
      EXPECT_TRUE(file.starts_with("step-") && file.find('.') == std::string::npos) << name << ": " << file;
      testing::Child verifier({testing::program_path(), "inspect", entry.path().string(), "--verify"}, {});
      const ChildResult verified = verifier.wait();
      EXPECT_EQ(verified.status, 0) << name << ": " << verified.output;
      steps.push_back(std::stoi(file.substr(5)));
    }
    std::sort(steps.begin(), steps.end());
    if (steps.empty()) {
      ADD_FAILURE() << name << ": nothing is saved";
      return steps;
    }
    const std::string log = read_file(folder_ / name / "log.txt");
    for (const int step : steps) {
      const std::string saved = "saved " + (folder_ / name / "checkpoints").string() + fmt::format("/step-{} ", step);
      const std::size_t first = log.find(saved);
      EXPECT_NE(first, std::string::npos) << name << ": no '" << saved << "' in " << log;
      EXPECT_EQ(log.find(saved, first + 1), std::string::npos) << name << ": step " << step << " is saved twice";
    }
    EXPECT_THAT(results[0].output, HasSubstr(fmt::format("stopped by SIGTERM at step {}", steps.back()))) << name;
    return steps;
  }
};

// From the batch of a step to its update.
TEST_F(StoppedRank, InAStepBothSaveIt) {
  constexpr int kMoments = 4;
  const long begin = kernels(2), per_step = (kernels(4) - begin) / 2;
  ASSERT_GT(per_step, 2 * kMoments);
  for (int moment = 0; moment < kMoments; ++moment) {
    const std::string name = fmt::format("step-{}", moment);
    const int rank = moment % 2;
    const std::vector<ChildResult> results =
        run(name, rank, fmt::format("do=stop;ops=parallel;at={}", begin + per_step * moment / kMoments),
            {"--training.steps=200", "--checkpoint.interval=0"});
    const std::vector<int> steps = expect_stopped(name, results);
    ASSERT_EQ(steps.size(), 1U) << name;
    EXPECT_THAT(steps.front(), ::testing::AllOf(::testing::Ge(2), ::testing::Le(5))) << name;
  }
}

// The other process is late: this one stands in a collective operation, and acts when it is through.
TEST_F(StoppedRank, WhileItWaitsForTheOtherBothSaveTheStep) {
  const long begin = kernels(2), per_step = kernels(3) - begin;
  testing::Ranks ranks(2);
  const std::vector<std::string> command = {testing::program_path(),
                                            "train",
                                            (folder_ / "run.json").string(),
                                            "--device=cpu",
                                            "--run.folder=" + (folder_ / "waits").string(),
                                            "--training.steps=200",
                                            "--checkpoint.interval=0"};
  ranks.start(0, command);
  ranks.start(1, command,
              {"LD_PRELOAD=" + testing::fault_shim_path(),
               fmt::format("QUENCH_FAULT=do=delay;ms=3000;ops=parallel;at={}", begin + per_step / 2)});
  const fs::path metrics = folder_ / "waits" / "metrics" / "metrics.jsonl";
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((!fs::exists(metrics) || read_file(metrics).find("\"step\":2,") == std::string::npos) &&
         std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  ranks[0].kill(SIGTERM);
  const std::vector<int> steps = expect_stopped("waits", ranks.wait());
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_GT(records("waits").at(steps.front()).at("communication_share").as_double(), 0.5) << "it did not wait";
}

TEST_F(StoppedRank, InASaveBothEndWithIt) {
  const std::vector<std::pair<int, int>> moments = {{0, 30}, {0, 52}, {0, 90}, {1, 3}, {1, 16}};
  for (const auto& [rank, call] : moments) {
    const std::string name = fmt::format("save-{}-{}", rank, call);
    const std::vector<ChildResult> results = run(name, rank, fmt::format("do=stop;at={};path=/checkpoints", call),
                                                 {"--training.steps=200", "--checkpoint.interval=1"});
    const std::vector<int> steps = expect_stopped(name, results);
    // One after the other, none left out.
    for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int>(i) + 1) << name;
  }
}

// There is nothing to save yet.
TEST_F(StoppedRank, BeforeTheFirstStepBothEndSoon) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<ChildResult> results = run("early", 0, "do=stop;at=1;path=/checkpoints", {});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(results[0].status, 128 + SIGTERM) << results[0].output;
  EXPECT_EQ(results[1].status, 1) << results[1].output;
  EXPECT_THAT(results[1].output, HasSubstr("rank 0"));
  train(2, "early");
}

}  // namespace
}  // namespace quench
