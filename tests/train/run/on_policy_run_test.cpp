// Runs of distillation on the student's own answers.

#include <gmock/gmock.h>

#include "tests/testing.h"
#include "tests/train/expect_error.h"
#include "tests/train/run/same_tensors.h"
#include "train/check/load.h"
#include "train/run/trainer.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Conversations of sums in bytes, a teacher that has learned them, and students of another seed.
class OnPolicyRun : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string records;
    for (int i = 0; i < 40; ++i)
      records += R"({"prompt": ")" + std::to_string(i % 10) + "+" + std::to_string(i % 4) + R"(=", "completion": ")" +
                 std::to_string(i % 10 + i % 4) + "\"}\n";
    testing::write_file(folder_ / "sums.jsonl", records);
  }
  [[nodiscard]] RunConfig config(const std::string& name, std::vector<std::string> overrides) const {
    const std::string document = R"({
      "model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": false},
      "data": {"train": [")" + (folder_ / "sums.jsonl").string() +
                                 R"("], "tokenizer": "bytes", "seq_len": 24, "multipack": true},
      "training": {"steps": 40, "micro_batch_size": 2, "global_batch_size": 4, "dtype": "f32", "threads": 1},
      "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "off", "progress": "off"}})";
    overrides.insert(overrides.begin(), "--run.folder=" + (folder_ / name).string());
    return parse_run_config(document, (folder_ / (name + ".json")).string(), overrides);
  }
  void run(const std::string& name, const std::vector<std::string>& overrides) const {
    ::testing::internal::CaptureStdout();
    try {
      (void)Trainer(config(name, overrides), Device{}).run();
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
  // Folder of a teacher.
  [[nodiscard]] std::string teacher() const {
    run("teacher",
        {"--training.steps=60", "--export.folder=" + (folder_ / "teacher-model").string(), "--training.seed=1"});
    return (folder_ / "teacher-model").string();
  }
  [[nodiscard]] fs::path checkpoint(const std::string& name, int step) const {
    return folder_ / name / "checkpoints" / ("step-" + std::to_string(step));
  }
  testing::TempDir folder_;
};

double mean_loss(const std::vector<Json>& steps, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += steps[i].at("objective").at("divergence").as_double();
  return sum / static_cast<double>(end - begin);
}

TEST_F(OnPolicyRun, TheDivergenceOnOwnAnswersFallsUnderEveryLoss) {
  const std::string model = teacher();
  for (const char* loss : {"reverse_kl", "forward_kl", "jensen_shannon"}) {
    SCOPED_TRACE(loss);
    run(loss, {"--distill.teacher=" + model, "--distill.loss=" + std::string(loss), "--distill.on_policy=1",
               "--distill.max_completion_length=6", "--training.steps=60"});
    const std::vector<Json> all = steps(loss);
    ASSERT_EQ(all.size(), 60u);
    const double first = mean_loss(all, 0, 5), last = mean_loss(all, 55, 60);
    RecordProperty(loss, std::to_string(first) + " to " + std::to_string(last));
    EXPECT_LT(last, 0.7 * first) << first;
    EXPECT_EQ(all.front().at("objective").at("on_policy"), Json(1.0));
  }
}

TEST_F(OnPolicyRun, MixedStepsResumeBitForBit) {
  const std::vector<std::string> options = {
      "--distill.teacher=" + teacher(),    "--distill.loss=reverse_kl", "--distill.on_policy=0.5",
      "--distill.max_completion_length=6", "--training.steps=8",        "--lr_schedule.decay_steps=8",
      "--checkpoint.interval=3",           "--checkpoint.keep_latest=0"};
  run("whole", options);
  std::vector<std::string> rest = options;
  rest.push_back("--checkpoint.resume=" + checkpoint("whole", 3).string());
  run("rest", rest);
  testing::expect_same_tensors(checkpoint("rest", 8), checkpoint("whole", 8));
  double own = 0;
  for (const Json& step : steps("whole")) own += step.at("objective").at("on_policy").as_double();
  EXPECT_GT(own, 0);
  EXPECT_LT(own, 8);
}

TEST_F(OnPolicyRun, ContradictionsAreNamedBeforeTheRun) {
  const auto refused = [&](const std::string& reason, const std::vector<std::string>& keys) {
    std::vector<std::string> all = {"--distill.teacher=initial", "--distill.on_policy=1",
                                    "--recipe.name=qat_int4_weight_only", "--recipe.group_size=16",
                                    "--distill.max_completion_length=6"};
    all.insert(all.end(), keys.begin(), keys.end());
    testing::expect_error(ErrorCode::bad_config, reason, [&] { run("refused", all); });
  };
  refused("has no right answer", {"--distill.ratio=0.5"});
  refused("distill.max_completion_length", {"--distill.max_completion_length=24"});
  refused("hold none of sampled answers", {"--distill.targets=" + (folder_ / "targets").string()});
  refused("has no effect without distill.on_policy", {"--distill.on_policy=0"});
  refused("may begin within a prompt", {"--data.multipack=false"});
  refused("has a prompt before its targets", {"--data.train_on=all"});
}

}  // namespace
}  // namespace quench
