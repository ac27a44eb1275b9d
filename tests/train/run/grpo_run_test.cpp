// Runs with section grpo.

#include <gmock/gmock.h>

#include "tests/train/expect_error.h"
#include "tests/train/run/grpo_fixture.h"
#include "tests/train/run/same_tensors.h"
#include "train/check/check.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_tensors;
using testing::GrpoTinyRun;
using ::testing::HasSubstr;
using testing::mean_of_range;

TEST(GrpoRun, TheRewardRisesOnTwoSeeds) {
  const GrpoTinyRun tiny;
  for (const char* seed : {"1", "2"}) {
    const std::string name = std::string("seed-") + seed;
    tiny.run(
        tiny.config(name, {"--training.steps=40", "--checkpoint.interval=0", "--training.seed=" + std::string(seed)}));
    const std::vector<double> rewards = tiny.values(name, "reward");
    ASSERT_EQ(rewards.size(), 40u);
    const double first = mean_of_range(rewards, 0, 5), last = mean_of_range(rewards, 35, 40);
    RecordProperty(name, std::to_string(first) + " to " + std::to_string(last));
    EXPECT_LT(first, 0.5);
    EXPECT_GT(last, 0.9);
  }
}

TEST(GrpoRun, EveryVariantResumesBitForBit) {
  const GrpoTinyRun tiny;
  int number = 0;
  for (const std::vector<std::string>& variant : std::vector<std::vector<std::string>>{
           {},
           {"--grpo.loss_type=grpo", "--grpo.beta=0.1"},
           {"--grpo.loss_type=dr_grpo", "--grpo.scale_rewards=none", "--grpo.temperature=0.8", "--grpo.top_k=50"},
           {"--grpo.importance_sampling_level=sequence", "--grpo.baseline=leave_one_out", "--grpo.scale_rewards=batch"},
           {"--lora.rank=4", "--grpo.beta=0.1", "--grpo.epsilon_high=0.28"}}) {
    const std::string whole = "whole-" + std::to_string(number), rest = "rest-" + std::to_string(number++);
    SCOPED_TRACE(whole);
    tiny.run(tiny.config(whole, variant));
    std::vector<std::string> resumed = variant;
    resumed.push_back("--checkpoint.resume=" + tiny.checkpoint(whole, 2).string());
    tiny.run(tiny.config(rest, resumed));
    const std::vector<std::string> figures = tiny.figures(whole);
    ASSERT_EQ(figures.size(), 4u);
    EXPECT_EQ(tiny.figures(rest), std::vector<std::string>(figures.begin() + 2, figures.end()));
    expect_same_tensors(tiny.checkpoint(rest, 4), tiny.checkpoint(whole, 4));
  }
}

TEST(GrpoRun, TheDivergenceFromTheModelAtStepZeroGrows) {
  const GrpoTinyRun tiny;
  tiny.run(tiny.config("run", {"--grpo.beta=0.01", "--training.steps=8"}));
  const std::vector<double> kl = tiny.values("run", "kl");
  EXPECT_NEAR(kl.front(), 0, 1e-6);
  EXPECT_GT(kl.back(), 1e-4);
}

TEST(GrpoRun, GroupsOfEqualRewardsAreCountedAndChangeNothing) {
  const GrpoTinyRun tiny;
  tiny.run(tiny.config("run", {"--grpo.reward_pattern=.?", "--training.steps=2", "--optimizer.weight_decay=0"}));
  for (const Json& step : tiny.steps("run")) {
    EXPECT_EQ(step.at("objective").at("frac_reward_zero_std"), Json(1.0));
    EXPECT_EQ(step.at("loss").as_double(), 0);
    EXPECT_EQ(step.at("grad_norm").as_double(), 0);
  }
}

TEST(GrpoRun, GroupsWithAMissingRewardAreLeftOut) {
  const GrpoTinyRun tiny;
  // The first of four groups of eight.
  const std::string script = "awk '{print NR == 3 ? \"null\" : NR % 2}'";
  tiny.run(tiny.config("run", {"--grpo.rewards=command", "--grpo.reward_pattern=null",
                               "--grpo.reward_command=" + script, "--training.steps=1"}));
  EXPECT_EQ(tiny.values("run", "frac_groups_skipped"), std::vector<double>{0.25});
  EXPECT_EQ(tiny.values("run", "reward"), std::vector<double>{0.5});
}

TEST(GrpoRun, AFailingRewardKeepsTheStepsBefore) {
  const GrpoTinyRun tiny;
  const std::string flag = (tiny.folder() / "flag").string();
  const std::string script = "if [ -e " + flag + " ]; then exit 7; fi; touch " + flag + "; awk '{print NR % 3}'";
  const std::vector<std::string> keys = {"--grpo.rewards=command", "--grpo.reward_pattern=null",
                                         "--grpo.reward_command=" + script};
  testing::expect_error(ErrorCode::failed, "failed with exit status 7", [&] { tiny.run(tiny.config("run", keys)); });
  EXPECT_TRUE(fs::exists(tiny.checkpoint("run", 1)));
}

// Loss, metrics and weights of the last step are those of a run that was not stopped after `step`.
void expect_same_after(const GrpoTinyRun& tiny, int number, int step, std::vector<std::string> options) {
  const std::string whole = "from-" + std::to_string(number), rest = "after-" + std::to_string(number);
  options.insert(options.end(), {"--training.steps=6", "--checkpoint.interval=1"});
  tiny.run(tiny.config(whole, options));
  options.push_back("--checkpoint.resume=" + tiny.checkpoint(whole, step).string());
  tiny.run(tiny.config(rest, options));
  const std::vector<std::string> figures = tiny.figures(whole);
  ASSERT_EQ(figures.size(), 6u);
  EXPECT_EQ(tiny.figures(rest), std::vector<std::string>(figures.begin() + step, figures.end()));
  expect_same_tensors(tiny.checkpoint(rest, 6), tiny.checkpoint(whole, 6));
}

TEST(GrpoRun, SeveralStepsOverTheSameSamplesResumeBitForBitInBetween) {
  const GrpoTinyRun tiny;
  expect_same_after(tiny, 0, 1, {"--grpo.num_iterations=3"});
  expect_same_after(tiny, 1, 2, {"--grpo.num_iterations=3", "--grpo.beta=0.1", "--grpo.loss_type=grpo"});
  expect_same_after(tiny, 2, 3, {"--grpo.num_iterations=3"});
  expect_same_after(tiny, 3, 5, {"--grpo.num_iterations=2", "--grpo.scale_rewards=batch"});
}

TEST(GrpoRun, StepsOverTheSameSamplesClipRatiosOfTheFirstProbabilities) {
  const GrpoTinyRun tiny;
  tiny.run(tiny.config(
      "run", {"--grpo.num_iterations=3", "--training.steps=6", "--optimizer.lr=3e-2", "--grpo.epsilon=0.05"}));
  const std::vector<double> rewards = tiny.values("run", "reward"),
                            apart = tiny.values("run", "sampling_logp_difference"),
                            low = tiny.values("run", "clip_ratio/low_mean"),
                            high = tiny.values("run", "clip_ratio/high_mean"),
                            region = tiny.values("run", "clip_ratio/region_mean");
  for (const std::size_t first : {0u, 3u}) {
    EXPECT_LT(apart[first], 1e-5);
    EXPECT_EQ(region[first], 0);
    for (const std::size_t later : {first + 1, first + 2}) {
      EXPECT_EQ(rewards[later], rewards[first]);
      EXPECT_GT(apart[later], apart[first] + 1e-3);
      EXPECT_GT(region[later], 0);
      EXPECT_NEAR(region[later], low[later] + high[later], 1e-6);
    }
  }
  EXPECT_NE(rewards[3], rewards[0]);
}

TEST(GrpoRun, EpochsCountEveryStepOverTheirSamples) {
  const GrpoTinyRun tiny;
  tiny.run(tiny.config("run", {"--grpo.num_iterations=2", "--training.steps=null", "--training.epochs=1"}));
  EXPECT_EQ(tiny.steps("run").size(), 6u);  // 12 prompts in batches of 4, twice each
}

TEST(GrpoRun, AKilledRewardCommandLosesNoStep) {
  const GrpoTinyRun tiny;
  const std::string flag = (tiny.folder() / "flag").string();
  const std::string killed = "if [ -e " + flag + " ]; then kill -9 $$; fi; touch " + flag + "; awk '{print NR % 3}'";
  const std::vector<std::string> reward = {"--grpo.rewards=command", "--grpo.reward_pattern=null",
                                           "--grpo.num_iterations=2", "--training.steps=6"};
  const auto with = [&](const std::string& command) {
    std::vector<std::string> all = reward;
    all.push_back("--grpo.reward_command=" + command);
    return all;
  };
  testing::expect_error(ErrorCode::failed, "was ended by signal 9",
                        [&] { tiny.run(tiny.config("run", with(killed))); });
  EXPECT_TRUE(fs::exists(tiny.checkpoint("run", 2)));
  fs::remove(flag);
  tiny.run(tiny.config("whole", with("awk '{print NR % 3}'")));
  std::vector<std::string> repaired = with("awk '{print NR % 3}'");
  repaired.push_back("--checkpoint.resume=" + tiny.checkpoint("run", 2).string());
  repaired.emplace_back("--checkpoint.allow_changes=grpo.reward_command");
  tiny.run(tiny.config("rest", repaired));
  const std::vector<std::string> whole = tiny.figures("whole");
  EXPECT_EQ(tiny.figures("rest"), std::vector<std::string>(whole.begin() + 2, whole.end()));
}

TEST(GrpoRun, WeightedRewardsAddUpAndAreReportedEach) {
  const GrpoTinyRun tiny;
  tiny.run(tiny.config("run", {R"(--grpo.rewards={"regex": 2, "command": -0.5})", "--training.steps=2",
                               "--grpo.reward_command=awk '{print NR % 2 ? 4 : \"null\"}'"}));
  for (const Json& step : tiny.steps("run")) {
    const Json& figures = step.at("objective");
    EXPECT_EQ(figures.at("rewards/command/mean"), Json(4.0));
    EXPECT_EQ(figures.at("rewards/command/std"), Json(0.0));
    EXPECT_NEAR(figures.at("reward").as_double(), 2 * figures.at("rewards/regex/mean").as_double() - 0.5 * 4 / 2, 1e-9);
  }
}

TEST(GrpoRun, CompletionsOfLoggedStepsAreRecordedWithTheirRewards) {
  const GrpoTinyRun tiny;
  tiny.run(tiny.config("run", {"--grpo.log_completions=3", "--training.steps=2"}));
  std::istringstream lines(testing::read_file(tiny.folder() / "run" / "metrics/samples.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json sample = Json::parse(line);
    EXPECT_EQ(sample.at("step").as_int(), 1 + count / 3);
    EXPECT_THAT(sample.at("prompt").as_string(), HasSubstr("q"));
    const std::string& text = sample.at("text").as_string();
    EXPECT_EQ(sample.at("reward").as_double(), text.find_first_of("0123456789") == std::string::npos ? 0 : 1) << text;
    EXPECT_EQ(sample.at("length").as_int(), std::ssize(sample.at("tokens").as_array()));
  }
  EXPECT_EQ(count, 6);
}

TEST(GrpoRun, ContradictionsAreNamedBeforeTheRun) {
  const GrpoTinyRun tiny;
  const auto refused = [&](const std::string& reason, const std::vector<std::string>& keys) {
    testing::expect_error(ErrorCode::bad_config, reason, [&] { tiny.run(tiny.config("refused", keys)); });
  };
  refused("grpo.max_completion_length", {"--grpo.max_completion_length=32"});
  refused("data.validation_split", {"--data.validation_split=0.5"});
  refused("has no effect on grpo.rewards regex", {"--grpo.reward_command=true"});
  refused("grpo.reward_pattern", {"--grpo.reward_pattern=("});
  refused("grpo.reward_command", {"--grpo.rewards=command", "--grpo.reward_pattern=null"});
  refused("grpo.num_generations", {"--grpo.num_generations=1"});
  refused("names no reward", {"--grpo.rewards=[]", "--grpo.reward_pattern=null"});
  refused("names regex twice", {"--grpo.rewards=regex,regex"});
  refused("its weight", {R"(--grpo.rewards={"regex": "much"})"});
  refused("grpo.reward_url", {"--grpo.rewards=http", "--grpo.reward_pattern=null", "--grpo.reward_url=ftp://x"});
  refused("Python module", {"--grpo.rewards=function", "--grpo.reward_pattern=null"});
  testing::write_file(tiny.folder() / "schema.json", R"({"properties": {"a": {"format": "date"}}})");
  refused(R"(#/properties/a: "format" is no keyword)",
          {"--grpo.rewards=json_schema", "--grpo.reward_pattern=null",
           "--grpo.reward_schema=" + (tiny.folder() / "schema.json").string()});
  RunConfig two = tiny.config("two");
  two.parallel.ranks = two.parallel.expert = 2;
  const std::vector<ConfigIssue> issues = check_run_config(two);
  ASSERT_FALSE(issues.empty());
  EXPECT_TRUE(std::ranges::any_of(
      issues, [](const ConfigIssue& issue) { return issue.reason.find("from whole weights") != std::string::npos; }));
}

TEST(GrpoRun, PromptsThatFillASequenceAreLeftOut) {
  const GrpoTinyRun tiny;
  const std::string record = R"({"prompt": ")" + std::string(40, 'q') + R"(", "answer": "1"})";
  testing::write_file(tiny.folder() / "long.jsonl", record + "\n" + R"({"prompt": "q", "answer": "1"})" + "\n");
  tiny.run(
      tiny.config("run", {R"(--data.train=[")" + (tiny.folder() / "long.jsonl").string() + "\"]", "--training.epochs=1",
                          "--training.steps=null", "--training.global_batch_size=1", "--training.micro_batch_size=1"}));
  EXPECT_EQ(tiny.steps("run").size(), 1u);
}

}  // namespace
}  // namespace quench
