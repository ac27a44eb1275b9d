// evaluation.early_stopping and checkpoint.keep_best.

#include "train/record/best_evaluation.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Options = std::vector<std::string>;

EvaluationMetrics evaluation_at(std::int64_t step, double loss) {
  EvaluationMetrics metrics;
  metrics.step = step;
  metrics.values = {{"loss", loss}, {"perplexity", std::exp(loss)}};
  return metrics;
}

TEST(BestEvaluation, WaitsForAnImprovement) {
  BestEvaluation best({.metric = "loss", .patience = 2, .min_delta = 0.1});
  EXPECT_TRUE(best.add(evaluation_at(1, 3)));
  EXPECT_TRUE(best.add(evaluation_at(2, 2.95))) << "the lowest, but not by min_delta";
  EXPECT_FALSE(best.exhausted());
  EXPECT_TRUE(best.add(evaluation_at(3, 2.85)));
  EXPECT_FALSE(best.add(evaluation_at(4, NAN)));
  EXPECT_FALSE(best.exhausted());
  BestEvaluation again({.metric = "loss", .patience = 2, .min_delta = 0.1});
  const Json state = best.state();
  again.restore(&state);
  for (BestEvaluation* one : {&best, &again}) {
    EXPECT_FALSE(one->add(evaluation_at(5, 2.9)));
    EXPECT_TRUE(one->exhausted());
    EXPECT_EQ(one->best()->step, 3);
    EXPECT_EQ(one->reason(),
              "no lower validation loss in 2 evaluations (by more than 0.1); the lowest is 2.8500 at step 3");
  }
  BestEvaluation other({.metric = "perplexity", .patience = 2});
  other.restore(&state);
  EXPECT_FALSE(other.best().has_value()) << "of another metric";
  BestEvaluation off({});
  for (int step = 0; step < 9; ++step) off.add(evaluation_at(step, 1));
  EXPECT_FALSE(off.exhausted());
}

TEST(BestEvaluation, RewardsRise) {
  const auto at = [](std::int64_t step, double accuracy) {
    EvaluationMetrics metrics;
    metrics.step = step;
    metrics.values = {{"loss", 1.0 / static_cast<double>(step)}};
    if (std::isfinite(accuracy)) metrics.values.emplace_back("rewards/accuracies", accuracy);
    return metrics;
  };
  BestEvaluation best({.metric = "rewards/accuracies", .patience = 3, .min_delta = 0.1});
  EXPECT_TRUE(best.add(at(1, 0.5)));
  EXPECT_TRUE(best.add(at(2, 0.75)));
  EXPECT_FALSE(best.add(at(3, 0.6)));
  EXPECT_TRUE(best.add(at(4, 0.8))) << "the highest, but not by min_delta";
  EXPECT_FALSE(best.exhausted());
  EXPECT_FALSE(best.add(at(5, NAN))) << "a value that is missing is no improvement";
  EXPECT_TRUE(best.exhausted());
  EXPECT_EQ(best.describe(), "rewards/accuracies 0.8000 at step 4");
  EXPECT_EQ(
      best.reason(),
      "no higher validation rewards/accuracies in 3 evaluations (by more than 0.1); the highest is 0.8000 at step 4");
}

class BestOfRuns : public ::testing::Test {
 protected:
  // Weights stay, so that the first evaluation is the best.
  TrainResult run(const std::string& name, const Options& more) const {
    Options all{"--data.validation=" + tiny_.folder("train.bin").string(),
                "--evaluation.interval=2",
                "--evaluation.steps=2",
                "--training.steps=20",
                "--checkpoint.interval=0",
                "--optimizer.lr=1e-30"};
    all.insert(all.end(), more.begin(), more.end());
    return tiny_.run(tiny_.config(name, all));
  }
  [[nodiscard]] Options checkpoints(const std::string& name) const {
    Options names;
    for (const auto& entry : std::filesystem::directory_iterator(tiny_.folder(name) / "checkpoints"))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  [[nodiscard]] std::string text(const std::string& name, const std::string& file) const {
    return testing::read_file(tiny_.folder(name) / file);
  }
  testing::TinyRun tiny_;
};

TEST_F(BestOfRuns, EndEarly) {
  const TrainResult ended = run("run", {"--evaluation.early_stopping.patience=3"});
  EXPECT_EQ(ended.step, 8);
  EXPECT_EQ(ended.stop_signal, 0);
  EXPECT_THAT(checkpoints("run"), ElementsAre("step-8"));
  EXPECT_THAT(text("run", "metrics/events.jsonl"),
              AllOf(HasSubstr("early_stop"), HasSubstr("no lower validation loss in 3 evaluations")));
  EXPECT_THAT(text("run", "log.txt"), AllOf(HasSubstr("ended early at step 8 of 20"),
                                            HasSubstr("early stopping: no lower validation loss in 3 evaluations"),
                                            HasSubstr("config.json --evaluation.early_stopping.patience=6")));
  EXPECT_EQ(run("run", {"--evaluation.early_stopping.patience=3"}).step, 8) << "ended";
  EXPECT_THAT(text("run", "log.txt"), HasSubstr("to continue, raise evaluation.early_stopping.patience"));
  EXPECT_EQ(run("run", {"--evaluation.early_stopping.patience=5"}).step, 12);
  const TrainResult exported = run("export", {"--evaluation.early_stopping.patience=1", "--export.format=hf"});
  EXPECT_EQ(exported.step, 4);
  EXPECT_TRUE(std::filesystem::exists(tiny_.folder("export") / "export" / "model.safetensors"));
}

TEST_F(BestOfRuns, PatienceGoesThroughCheckpoints) {
  run("run", {"--evaluation.early_stopping.patience=3", "--checkpoint.interval=5"});
  const TrainResult rest = run(
      "rest", {"--evaluation.early_stopping.patience=3", "--checkpoint.resume=" + tiny_.checkpoint("run", 5).string()});
  EXPECT_EQ(rest.step, 8);
}

// The same bytes under another name are the same data.
TEST_F(BestOfRuns, CountOfTheSameValidationDataAlone) {
  const auto resumed = [&](const std::string& file) {
    run("run", {"--evaluation.early_stopping.patience=9", "--training.steps=4", "--checkpoint.resume=never"});
    run("run", {"--evaluation.early_stopping.patience=2", "--data.validation=" + tiny_.folder(file).string()});
    return text("run", "log.txt");
  };
  std::filesystem::copy_file(tiny_.folder("train.bin"), tiny_.folder("same.bin"));
  EXPECT_THAT(resumed("same.bin"), AllOf(::testing::Not(HasSubstr("no longer counts")), HasSubstr("at step 2")));
  ShardWriter writer(tiny_.folder("other.bin"), {.vocab_size = 64, .eos_id = 0});
  for (int document = 0; document < 20; ++document) {
    writer.append(std::vector<std::int32_t>(40, document + 1));
    writer.end_document();
  }
  writer.finish();
  EXPECT_THAT(resumed("other.bin"),
              AllOf(HasSubstr("data.validation has changed since the checkpoint: loss "),
                    HasSubstr(" at step 2, its best, no longer counts"), HasSubstr("ended early at step 10 of 20"),
                    ::testing::ContainsRegex("no lower validation loss in 2 evaluations; the lowest is .* at step 6"),
                    ::testing::ContainsRegex("best validation [^ ]* at step 6")));
}

TEST_F(BestOfRuns, KeepTheBestCheckpoint) {
  const Options common{"--checkpoint.keep_best=true", "--checkpoint.keep_latest=1", "--training.steps=10"};
  const auto with = [&](const Options& more) {
    Options all = common;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  run("intervals", with({"--checkpoint.interval=3"}));
  EXPECT_THAT(checkpoints("intervals"), ElementsAre("step-10", "step-2"));
  EXPECT_THAT(text("intervals", "log.txt"), HasSubstr("best checkpoint: " + tiny_.checkpoint("intervals", 2).string()));
  run("resumed", with({"--training.steps=4"}));
  run("resumed", with({"--training.steps=6", "--checkpoint.interval=1"}));
  EXPECT_THAT(checkpoints("resumed"), ElementsAre("step-2", "step-4", "step-6")) << "step-4 was resumed from";
  run("falling", with({"--optimizer.lr=0.01", "--checkpoint.async=false"}));
  EXPECT_THAT(checkpoints("falling"), ElementsAre("step-10")) << "the last is the best";
}

TEST_F(BestOfRuns, NeedValidation) {
  EXPECT_THAT(testing::complaint({"--evaluation.early_stopping.patience=3"}),
              HasSubstr("evaluation.early_stopping.patience: 3, but data.validation is empty"));
  EXPECT_THAT(testing::complaint({"--checkpoint.keep_best=true"}),
              HasSubstr("checkpoint.keep_best: true, but data.validation is empty"));
  EXPECT_THAT(testing::complaint({"--checkpoint.keep_best=true", "--data.validation=a.bin", "--evaluation.interval=0"}),
              HasSubstr("checkpoint.keep_best: true, but evaluation.interval is 0"));
  EXPECT_THAT(
      testing::complaint({"--preference.loss=dpo", "--checkpoint.keep_best=true", "--data.validation=a.bin",
                          "--evaluation.early_stopping.metric=perplexity"}),
      HasSubstr("evaluation.early_stopping.metric: perplexity, but the validation with section preference has none; "
                "use loss, rewards/accuracies, "));
  EXPECT_THAT(testing::complaint({"--checkpoint.keep_best=true", "--data.validation=a.bin",
                                  "--evaluation.early_stopping.metric=rewards/accuracies"}),
              HasSubstr("rewards/accuracies, but the validation without section preference has none; use loss, "
                        "perplexity"));
  EXPECT_THAT(testing::complaint({"--evaluation.early_stopping.metric=accuracy"}), HasSubstr("loss, perplexity"));
  EXPECT_THAT(testing::complaint({"--evaluation.early_stopping.min_delta=-1"}), HasSubstr("min_delta"));
}

}  // namespace
}  // namespace quench
