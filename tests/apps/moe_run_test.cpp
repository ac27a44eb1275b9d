// A model with experts from text to generation: trained, stopped and resumed, exported, loaded again.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

class MoeRun : public RunProject {
 protected:
  void SetUp() override {
    RunProject::SetUp();
    write_config(R"({"preset": "tiny-moe", "vocab_size": 280})");
  }
  [[nodiscard]] std::vector<Json> records(const std::string& name) const {
    std::vector<Json> result;
    std::istringstream lines(read_file(work() / name));
    for (std::string line; std::getline(lines, line);) result.push_back(Json::parse(line));
    return result;
  }
};

TEST_F(MoeRun, TrainsResumesExportsAndGenerates) {
  const Outcome first = run({"train", "run.json", "--export.format=hf", "--export.folder=model"});
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.output, HasSubstr("2 layers of 8 experts of width 64, 2 for each token"));
  EXPECT_THAT(first.output, HasSubstr("imbal "));
  const auto metrics = records("run/metrics/metrics.jsonl");
  EXPECT_LT(metrics.back().at("loss").as_double(), 0.7 * metrics.front().at("loss").as_double());
  const auto experts = records("run/metrics/experts.jsonl");
  ASSERT_EQ(experts.size(), metrics.size());
  EXPECT_EQ(experts.back().at("layers").as_object().size(), 2u);
  EXPECT_EQ(experts.back().at("layers").at("1").as_array().size(), 8u);
  EXPECT_GT(experts.back().at("balance_loss").as_double(), 1.0);

  // The last checkpoint but one, and on from there: the same losses.
  std::filesystem::remove_all(work() / "run/checkpoints/step-30");
  expect_ok({"train", "run.json"});
  EXPECT_EQ(records("run/metrics/metrics.jsonl").back().at("loss"), metrics.back().at("loss"));
  EXPECT_EQ(records("run/metrics/experts.jsonl").size(), experts.size());

  EXPECT_THAT(read_file(work() / "model" / "config.json"), HasSubstr("Qwen3MoeForCausalLM"));
  const std::string of_run = continuation(run(generate("run"))), of_export = continuation(run(generate("model")));
  EXPECT_EQ(of_run, of_export);
  expect_ok({"report", "run"});
  EXPECT_THAT(read_file(work() / "run" / "report.html"),
              ::testing::ContainsRegex(R"x("experts":\{"step":[0-9]+,"layers":\[\[[0-9]+,\[)x"));
}

// PEFT 0.21 fuses gate and up on load, with twice the rank and alpha of the folder: seen next to its logits.
TEST_F(MoeRun, AdaptersThatPeftReadsOtherwiseAreNamed) {
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"train",
                                 "run.json",
                                 "--training.steps=1",
                                 "--checkpoint.enable=false",
                                 "--lora.rank=4",
                                 "--export.format=peft",
                                 "--export.folder=adapter"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.errors + outcome.output;
  };
  EXPECT_THAT(said({}), ::testing::Not(HasSubstr("PEFT (0.21)")));
  EXPECT_THAT(said({"--lora.rank_pattern={\"*q_proj\": 2}"}), ::testing::Not(HasSubstr("PEFT (0.21)")));
  EXPECT_THAT(said({"--lora.rslora=true"}), HasSubstr("PEFT (0.21) scales gate and up of experts by the root of 2"));
  EXPECT_THAT(said({"--lora.targets=[\"gate_proj\"]"}), HasSubstr("PEFT (0.21) refuses adapters of gate or up"));
  EXPECT_THAT(said({"--lora.alpha_pattern={\"*.experts.*\": 3}"}), HasSubstr("PEFT (0.21) ignores rank_pattern"));
}

TEST_F(MoeRun, RecipesConvertExperts) {
  for (const std::string recipe : {"mxfp8", "float8_rowwise"}) {
    const Outcome outcome = run({"train", "run.json", "--recipe.name=" + recipe, "--run.folder=" + recipe,
                                 "--training.dtype=bf16", "--training.activation_checkpoint=selective"});
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("mlp.experts.gate_up_proj of 8 experts"));
    const auto metrics = records(recipe + "/metrics/metrics.jsonl");
    EXPECT_LT(metrics.back().at("loss").as_double(), 0.75 * metrics.front().at("loss").as_double()) << recipe;
  }
}

TEST_F(MoeRun, RouterLossesNeedARouter) {
  write_config(R"({"preset": "tiny", "vocab_size": 280})");
  const Outcome outcome = run({"train", "run.json", "--training.router_z_loss=0.1"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("training.router_z_loss: LlamaForCausalLM has no experts"));
}

}  // namespace
}  // namespace quench::testing
