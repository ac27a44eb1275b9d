// training.master_split with several processes.

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

class ShardedSplitMasterWeights : public testing::ShardedTraining {};

TEST_F(ShardedSplitMasterWeights, TrainTheSame) {
  const std::vector<std::string> separate = {"--training.dtype=bf16"};
  const std::vector<std::string> split = {"--training.dtype=bf16", "--training.master_split=true"};
  train(2, "separate", separate);
  train(2, "split", split);
  expect_near_run("split", "separate", 1e-6);
  // Saved by two processes, resumed by one or three, also into the other layout: restored without its lower halves, a
  // weight would be off by up to half a bf16 step.
  const auto resumed = [&](const std::string& name, std::vector<std::string> first, std::vector<std::string> then,
                           int ranks) {
    first.emplace_back("--training.steps=4");
    then.emplace_back("--checkpoint.allow_changes=training.master_split");
    train(2, name, first);
    train(ranks, name, then);
  };
  for (const int ranks : {1, 3}) {
    const auto expect_near = [&](const std::string& name, const std::vector<std::string>& first,
                                 const std::vector<std::string>& then) {
      resumed(fmt::format("{}{}", name, ranks), first, then, ranks);
      expect_near_run(fmt::format("{}{}", name, ranks), fmt::format("onwards-separate{}", ranks), 1e-6);
    };
    resumed(fmt::format("onwards-separate{}", ranks), separate, separate, ranks);
    expect_near("onwards", split, split);
    expect_near("from-split", split, separate);
    expect_near("to-split", separate, split);
  }
}

// Adapters, their averages and frozen weights of two processes, resumed by one.
TEST_F(ShardedSplitMasterWeights, OfAdaptersAreResumedByOneProcess) {
  const std::vector<std::string> separate = {"--training.dtype=bf16", "--lora.rank=2", "--lora.modules_to_save=norm",
                                             "--training.ema_decay=0.9"};
  std::vector<std::string> split = separate;
  split.emplace_back("--training.master_split=true");
  for (const auto& [name, options] : {std::pair{"separate", separate}, {"split", split}}) {
    std::vector<std::string> half = options;
    half.emplace_back("--training.steps=4");
    train(2, name, half);
    train(1, name, options);
  }
  expect_near_run("split", "separate", 1e-6);
}

}  // namespace
}  // namespace quench
