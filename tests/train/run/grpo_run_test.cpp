// Runs with section grpo.

#include <gmock/gmock.h>

#include "tests/testing.h"
#include "tests/train/run/same_tensors.h"
#include "train/check/check.h"
#include "train/check/load.h"
#include "train/run/trainer.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_tensors;
using ::testing::HasSubstr;

// A tiny model of bytes that is rewarded for digits.
class GrpoTinyRun {
 public:
  GrpoTinyRun() {
    std::string records;
    for (int i = 0; i < 12; ++i)
      records += R"({"prompt": "q)" + std::to_string(i) + R"(", "answer": ")" + std::to_string(i) + "\"}\n";
    testing::write_file(folder_ / "prompts.jsonl", records);
  }

  [[nodiscard]] RunConfig config(const std::string& name, std::vector<std::string> overrides = {}) const {
    const std::string document = R"({
      "model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": false},
      "data": {"train": [")" + (folder_ / "prompts.jsonl").string() +
                                 R"("], "tokenizer": "bytes", "seq_len": 32},
      "grpo": {"num_generations": 8, "max_completion_length": 6, "reward": "regex", "reward_pattern": "[0-9]"},
      "training": {"steps": 4, "micro_batch_size": 2, "global_batch_size": 4, "dtype": "f32", "threads": 1},
      "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 2, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "off", "progress": "off"}})";
    overrides.insert(overrides.begin(), "--run.folder=" + (folder_ / name).string());
    return parse_run_config(document, (folder_ / (name + ".json")).string(), overrides);
  }
  void run(const RunConfig& config) const {
    ::testing::internal::CaptureStdout();
    try {
      (void)Trainer(config, Device{}).run();
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
    (void)::testing::internal::GetCapturedStdout();
  }
  [[nodiscard]] std::vector<Json> steps(const std::string& name) const {
    std::vector<Json> all;
    std::istringstream lines(testing::read_file(folder_ / name / "metrics/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
  // A metric of every step.
  [[nodiscard]] std::vector<double> values(const std::string& name, const char* metric) const {
    std::vector<double> all;
    for (const Json& step : steps(name)) all.push_back(step.at("objective").at(metric).as_double());
    return all;
  }
  // Loss and metrics of steps, exactly as written.
  [[nodiscard]] std::vector<std::string> figures(const std::string& name) const {
    std::vector<std::string> all;
    for (const Json& step : steps(name)) all.push_back(step.at("loss").dump() + step.at("objective").dump());
    return all;
  }
  [[nodiscard]] fs::path checkpoint(const std::string& name, int step) const {
    return folder_ / name / "checkpoints" / ("step-" + std::to_string(step));
  }
  [[nodiscard]] const testing::TempDir& folder() const { return folder_; }

 private:
  testing::TempDir folder_;
};

double mean_of_range(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

void expect_grpo_error(ErrorCode code, const std::string& reason, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "accepted; expected: " << reason;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

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
  tiny.run(tiny.config("run", {"--grpo.reward=command", "--grpo.reward_pattern=null", "--grpo.reward_command=" + script,
                               "--training.steps=1"}));
  EXPECT_EQ(tiny.values("run", "frac_groups_skipped"), std::vector<double>{0.25});
  EXPECT_EQ(tiny.values("run", "reward"), std::vector<double>{0.5});
}

TEST(GrpoRun, AFailingRewardKeepsTheStepsBefore) {
  const GrpoTinyRun tiny;
  const std::string flag = (tiny.folder() / "flag").string();
  const std::string script = "if [ -e " + flag + " ]; then exit 7; fi; touch " + flag + "; awk '{print NR % 3}'";
  const std::vector<std::string> keys = {"--grpo.reward=command", "--grpo.reward_pattern=null",
                                         "--grpo.reward_command=" + script};
  expect_grpo_error(ErrorCode::failed, "failed with exit status 7", [&] { tiny.run(tiny.config("run", keys)); });
  EXPECT_TRUE(fs::exists(tiny.checkpoint("run", 1)));
}

TEST(GrpoRun, ContradictionsAreNamedBeforeTheRun) {
  const GrpoTinyRun tiny;
  const auto refused = [&](const std::string& reason, const std::vector<std::string>& keys) {
    expect_grpo_error(ErrorCode::bad_config, reason, [&] { tiny.run(tiny.config("refused", keys)); });
  };
  refused("grpo.max_completion_length", {"--grpo.max_completion_length=32"});
  refused("data.validation_split", {"--data.validation_split=0.5"});
  refused("has no effect on grpo.reward regex", {"--grpo.reward_command=true"});
  refused("grpo.reward_pattern", {"--grpo.reward_pattern=("});
  refused("grpo.reward_command", {"--grpo.reward=command", "--grpo.reward_pattern=null"});
  refused("grpo.num_generations", {"--grpo.num_generations=1"});
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
