// Trainer::begin(), step() and end(): a loop around the trainer.

#include <gtest/gtest.h>

#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using testing::TinyRun;

// Counts what it is given.
class CountingSink final : public MetricsSink {
 public:
  struct Counts {
    std::vector<double> losses;
    std::vector<std::string> evaluations;
  };
  explicit CountingSink(Counts& counts) : counts_(counts) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "the test"; }
  void step(const StepMetrics& metrics) override { counts_.losses.push_back(metrics.loss); }
  void evaluation(const EvaluationMetrics& metrics) override { counts_.evaluations.push_back(metrics.name); }
  void sample(const SampleRecord&) override {}
  void rewind(std::int64_t) override {}

 private:
  Counts& counts_;
};

TEST(TrainerSteps, LoopOfOnesOwnTrainsAsRunDoes) {
  const TinyRun tiny;
  tiny.run(tiny.config("whole"));
  Trainer trainer(tiny.config("steps"), Device{}, -1);
  trainer.begin();
  std::int64_t steps = 0;
  while (trainer.step()) EXPECT_EQ(trainer.progress().step, ++steps);
  EXPECT_EQ(steps, 40);
  EXPECT_FALSE(trainer.step());
  EXPECT_EQ(trainer.session().model().config().hidden_size, 32);
  const TrainResult result = trainer.end();
  EXPECT_EQ(result.step, 40);
  EXPECT_EQ(result.stop_signal, 0);
  EXPECT_EQ(tiny.losses("steps"), tiny.losses("whole"));
  expect_same_tensors(tiny.checkpoint("steps", 40), tiny.checkpoint("whole", 40));
}

TEST(TrainerSteps, RunThatEndsBetweenStepsResumesThere) {
  const TinyRun tiny;
  tiny.run(tiny.config("whole"));
  {
    Trainer trainer(tiny.config("parts"), Device{}, -1);
    trainer.begin();
    for (int i = 0; i < 7; ++i) EXPECT_TRUE(trainer.step());
    const TrainResult result = trainer.end();
    EXPECT_EQ(result.step, 7);
    EXPECT_EQ(result.checkpoint, tiny.checkpoint("parts", 7).string());
  }
  EXPECT_THAT(read_file(tiny.folder("parts") / "log.txt"), ::testing::HasSubstr("stopped at step 7 of 40"));
  tiny.run(tiny.config("parts"));
  EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
  expect_same_tensors(tiny.checkpoint("parts", 40), tiny.checkpoint("whole", 40));
}

TEST(TrainerSteps, AddedDestinationsReceiveMetrics) {
  const TinyRun tiny;
  CountingSink::Counts counts;
  const std::string data = (tiny.folder("train.bin")).string();
  Trainer trainer(
      tiny.config("run", {"--training.steps=4", "--evaluation.interval=2", R"(--data.validation=[")" + data + "\"]"}),
      Device{}, -1);
  trainer.add_metrics(std::make_unique<CountingSink>(counts));
  (void)trainer.run(false);
  EXPECT_EQ(counts.losses.size(), 4u);
  EXPECT_EQ(counts.evaluations, (std::vector<std::string>{"validation", "validation"}));
}

}  // namespace
}  // namespace quench
