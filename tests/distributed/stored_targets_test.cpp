// Stored targets by two processes: those of one, and training from them.

#include <gtest/gtest.h>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

using Options = std::vector<std::string>;

class StoredTargetsByTwo : public testing::ShardedTraining {
 protected:
  // `fault`: of rank 1.
  void make(int ranks, const Options& options, const std::string& fault = {}) {
    Options command = {testing::program_path(), "distill-targets", (folder_ / "run.json").string(), "--device=cpu",
                       "--run.folder=" + (folder_ / "made").string()};
    command.insert(command.end(), options.begin(), options.end());
    if (ranks == 1) {
      testing::Child alone(command, {"OMP_NUM_THREADS=1"});
      const testing::ChildResult result = alone.wait();
      ASSERT_EQ(result.status, 0) << result.output;
      return;
    }
    testing::Ranks all(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      all.start(rank, command,
                rank == 1 && !fault.empty()
                    ? Options{"LD_PRELOAD=" + testing::fault_shim_path(), "QUENCH_FAULT=" + fault}
                    : Options{});
    for (const testing::ChildResult& result : all.wait()) ASSERT_EQ(result.status, 0) << result.output;
  }
};

TEST_F(StoredTargetsByTwo, TrainTheSame) {
  const auto options = [&](const std::string& name) {
    return Options{"--recipe.name=bf16", "--distill.ratio=0.5", "--distill.top_k=7",
                   "--distill.targets=" + (folder_ / name).string()};
  };
  make(1, options("one_targets"));
  make(2, options("two_targets"));
  EXPECT_TRUE(testing::fs::exists(folder_ / "two_targets" / "targets-001-00000.safetensors"));
  train(1, "one", options("one_targets"));
  train(2, "two", options("two_targets"));
  expect_near_run("two", "one", 1e-4);
}

// A network file system may show one process fewer shards than another.
TEST_F(StoredTargetsByTwo, AreCompletedFromOneListing) {
  const Options options{"--recipe.name=bf16", "--distill.ratio=0.5", "--distill.top_k=7",
                        "--distill.targets=" + (folder_ / "targets").string()};
  Options fewer = options;
  fewer.emplace_back("--training.steps=2");
  make(1, fewer);
  make(2, options, "do=EIO;ops=list;path=/targets/targets-0");
  EXPECT_TRUE(testing::fs::exists(folder_ / "targets" / "targets-000-00001.safetensors"));
  train(1, "run", options);
}

}  // namespace
}  // namespace quench
