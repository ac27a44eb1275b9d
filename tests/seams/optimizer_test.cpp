// Adding an optimizer: from its name in a config to the update of a run, checkpoints included. The shared tests of
// optimizers run over it as well (tests/nn/optim/optimizer_table_test.cpp).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/seams/added_optimizer.h"
#include "tests/seams/refusal.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/config/fields/field.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::refusal;
using testing::TinyRun;

std::vector<std::string> lion(int steps) {
  return {"--optimizer.name=lion", "--optimizer.lr=1e-3", "--training.steps=" + std::to_string(steps),
          "--lr_schedule.name=constant", "--checkpoint.interval=0"};
}

TEST(AddedOptimizer, TrainsAndResumes) {
  const TinyRun tiny;
  tiny.run(tiny.config("whole", lion(12)));
  tiny.run(tiny.config("parts", lion(5)));
  tiny.run(tiny.config("parts", lion(12)));
  EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
  testing::expect_same_tensors(tiny.checkpoint("parts", 12), tiny.checkpoint("whole", 12));
  CheckpointReader reader(tiny.checkpoint("whole", 12));
  EXPECT_NO_THROW((void)reader.at("optimizer.momentum.model.norm.weight"));
  EXPECT_GT(estimate_run(ResolvedConfig(tiny.config("plan", lion(12))), Device{}).checkpoint_bytes, 0);
}

TEST(AddedOptimizer, IsNamedInConfigsAndErrors) {
  const TinyRun tiny;
  EXPECT_THAT(find_field("optimizer.name")->type, HasSubstr("lion"));
  EXPECT_THAT(find_field("optimizer.name")->help, HasSubstr("lion: the sign of the momentum."));
  EXPECT_THAT(refusal([&] { (void)tiny.config("x", {"--optimizer.name=lionn"}); }), HasSubstr("lion"));
  EXPECT_THAT(refusal([&] {
                (void)tiny.config("x", {"--optimizer.name=lion", "--optimizer.eps=1e-3"});
              }),
              HasSubstr("optimizer.name lion does not use it"));
}

}  // namespace
}  // namespace quench
