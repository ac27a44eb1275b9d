#include <gtest/gtest.h>

#include "nn/optim/table.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using testing::TinyRun;

// Rows of 256 elements have low-bit moments.
TEST(Trainer, ResumeIsExactUnderEveryOptimizer) {
  for (const nn::OptimizerEntry& optimizer : nn::optimizer_table()) {
    SCOPED_TRACE(optimizer.name);
    const TinyRun tiny;
    const auto run = [&](const std::string& name, int steps) {
      tiny.run(tiny.config(
          name, {"--training.dtype=bf16", "--training.master_dtype=none", "--model.hidden_size=256",
                 "--model.num_hidden_layers=1", "--evaluation.interval=0", "--training.steps=" + std::to_string(steps),
                 "--lr_schedule.warmup_steps=1", "--lr_schedule.decay_steps=6", "--checkpoint.interval=0",
                 "--optimizer.name=" + std::string(optimizer.name)}));
    };
    run("whole", 6);
    run("parts", 3);
    run("parts", 6);
    EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
    expect_same_tensors(tiny.checkpoint("parts", 6), tiny.checkpoint("whole", 6));
  }
}

}  // namespace
}  // namespace quench
