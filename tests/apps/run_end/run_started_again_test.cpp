// Finished and changed runs that are started again.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;

class RunStartedAgain : public testing::RunProject {
 protected:
  [[nodiscard]] Outcome train(std::vector<std::string> more) const {
    more.insert(more.begin(), {"train", "run.json"});
    return run(more);
  }
};

TEST_F(RunStartedAgain, SaysWhichCheckpointsThereAreAndWhichIsTheBest) {
  const std::vector<std::string> keeps = {"--checkpoint.keep_best=true", "--export.format=hf"};
  const Outcome first = train(keeps), again = train(keeps);
  ASSERT_EQ(first.status, 0) << first.errors;
  ASSERT_EQ(again.status, 0) << again.errors;
  const std::string words =
      "  checkpoints: run/checkpoints, the newest run/checkpoints/step-30\n"
      "  best checkpoint: run/checkpoints/step-30\n";
  EXPECT_THAT(first.output, HasSubstr(words));
  EXPECT_THAT(again.output, HasSubstr(words));
  EXPECT_THAT(again.output, HasSubstr("train run/config.json --training.steps=60\n"));
}

TEST_F(RunStartedAgain, AdaptersOnAFullRunAreAConfigMistake) {
  make_base();
  ASSERT_EQ(train({}).status, 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--lora.rank=4"}, {"--lora.rank=4", "--lora.base=nf4"}}) {
    const Outcome outcome = train(more);
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("  lora.rank: (unset) -> 4"), HasSubstr("--checkpoint.folder"),
                                      HasSubstr("--run.folder")));
  }
  ASSERT_EQ(train({"--lora.rank=4", "--run.folder=adapters"}).status, 0);
  EXPECT_EQ(train({"--run.folder=adapters"}).status, 2);
}

TEST_F(RunStartedAgain, AChangedConfigIsToldOfTheKeyThatMakesAnotherRun) {
  ASSERT_EQ(train({"--run.folder=runs/mine"}).status, 0);
  const Outcome named = train({"--unset=run.folder", "--run.name=mine", "--training.seed=7"});
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.errors, AllOf(HasSubstr("training.seed: 42 -> 7"), HasSubstr("another --run.name")));
  EXPECT_THAT(train({"--run.folder=runs/mine", "--run.name=other", "--training.seed=7"}).errors,
              HasSubstr("another --run.folder"));
}

}  // namespace
}  // namespace quench
