// The plan verb as a user meets it.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;

std::vector<std::string> plan(const std::vector<std::string>& more) {
  std::vector<std::string> all{"plan",      "--model", "smollm2-135m",      "--gpu", "H100", "--gpus", "2",
                               "--seq-len", "2048",    "--tokens-per-step", "16384"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(PlanVerb, WritesAConfigThatTheProgramTakes) {
  const TempDir folder;
  testing::write_file(folder / "text.txt", "some text\n");
  const std::vector<std::string> written = plan(
      {"--out", "plan.json", "--data", "text.txt", "--steps", "5", "--data.tokenizer=bytes", "--model.vocab_size=512"});
  const Outcome first = run_program(folder.path(), written);
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.output, HasSubstr("smollm2-135m on 2 x H100 80GB: full, 16384 tokens a step"));
  EXPECT_THAT(first.output, HasSubstr("alternatives, one change at a time"));
  EXPECT_THAT(first.output, HasSubstr("wrote plan.json"));
  const Outcome check = run_program(folder.path(), {"config", "check", "plan.json"});
  EXPECT_EQ(check.status, 0) << check.errors;
  const Outcome estimate =
      run_program(folder.path(), {"estimate", "plan.json", "--gpu", "H100", "--world-size", "2", "--json"});
  ASSERT_EQ(estimate.status, 0) << estimate.errors;
  EXPECT_TRUE(Json::parse(estimate.output).at("fits").as_bool());
  const Outcome again = run_program(folder.path(), written);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.errors, HasSubstr("plan.json"));
}

TEST(PlanVerb, PrintsJson) {
  const TempDir folder;
  const Outcome outcome = run_program(folder.path(), plan({"--json", "--recipe.name=bf16"}));
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json json = Json::parse(outcome.output);
  EXPECT_EQ(json.at("gpu"), Json("H100 80GB"));
  EXPECT_GT(json.at("tokens_per_second").as_double(), 0);
  EXPECT_LE(json.at("memory_bytes").as_int(), json.at("available_bytes").as_int());
  EXPECT_FALSE(json.at("alternatives").as_array().empty());
}

TEST(PlanVerb, MistakesAreNamed) {
  const TempDir folder;
  const auto errors = [&](const std::vector<std::string>& more) {
    const Outcome outcome = run_program(folder.path(), plan(more));
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    return outcome.errors;
  };
  EXPECT_THAT(errors({"word"}), HasSubstr("not \"word\""));
  EXPECT_THAT(errors({"--host-memory", "much"}), HasSubstr("expected a size such as 512GB"));
  EXPECT_THAT(errors({"--objective", "half"}), HasSubstr("half"));
  EXPECT_THAT(errors({"--training.dtype=f32"}), HasSubstr("predicted for training.dtype bf16 alone"));
  EXPECT_THAT(errors({"--trainin.dtype=f32"}), HasSubstr("trainin"));
  const Outcome gpu =
      run_program(folder.path(), {"plan", "--model", "smollm2-135m", "--gpu", "H1000", "--tokens-per-step", "4096"});
  EXPECT_EQ(gpu.status, 2);
  EXPECT_THAT(gpu.errors, HasSubstr("--gpu 'H1000' is unknown; known are"));
}

}  // namespace
}  // namespace quench
