// recipe.name "auto" in runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/plan/estimate.h"
#include "train/probe/auto_recipe.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using ::testing::HasSubstr;
using testing::TinyRun;
using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string printed_by(const RunConfig& config) {
  ::testing::internal::CaptureStdout();
  Trainer(config, Device{}).run();
  return ::testing::internal::GetCapturedStdout();
}

// The checkpoint again, with a choice that no CPU would make.
void forge_choice(const std::filesystem::path& run, int step, const Json& choice) {
  const std::filesystem::path folder = run / "checkpoints";
  CheckpointState state;
  std::vector<CheckpointTensor> tensors;
  {
    CheckpointReader reader(folder / ("step-" + std::to_string(step)));
    state = reader.state();
    for (const TensorRecord& record : reader.manifest().tensors) {
      const Tensor tensor = Tensor::empty(record.shape, record.dtype);
      reader.read(record.name, tensor);
      tensors.push_back(CheckpointTensor::whole(record.name, tensor));
    }
  }
  ASSERT_NE(state.extra.find("recipe_choice"), nullptr);
  state.extra.set("recipe_choice", choice);
  const RunLock lock(run);
  CheckpointWriter(folder, lock, {.keep_latest = 0, .async = false}).save(state, tensors);
}

const Words kTen{"--training.steps=10", "--lr_schedule.decay_steps=20"};
const Words kTwenty{"--training.steps=20", "--lr_schedule.decay_steps=20"};
const Words kAuto{"--recipe.name=auto"};

TEST(AutoRecipe, IsBf16OnACpuBitForBitAndSaysSo) {
  const TinyRun tiny;
  tiny.run(tiny.config("plain", kTen));
  const std::string printed = printed_by(tiny.config("auto", with(kTen, kAuto)));
  EXPECT_THAT(printed,
              HasSubstr("recipe: auto, which is f32 (recipe bf16, no low precision): cpu has no float8 tensor cores"));
  EXPECT_EQ(tiny.losses("auto"), tiny.losses("plain"));
  expect_same_tensors(tiny.checkpoint("auto", 10), tiny.checkpoint("plain", 10));
  // The config stays what the user wrote; what it became stands next to it.
  const std::filesystem::path folder = tiny.folder("auto");
  EXPECT_EQ(Json::parse_file(folder / "config.json").at("recipe").at("name").as_string(), "auto");
  EXPECT_EQ(Json::parse_file(folder / "recipe.json").at("recipe").at("name").as_string(), "bf16");
  EXPECT_FALSE(std::filesystem::exists(tiny.folder("plain") / "recipe.json"));
}

TEST(AutoRecipe, AResumedRunKeepsItsChoice) {
  const TinyRun tiny;
  const RecipeChoice choice{"float8_rowwise", {"lm_head", "*.down_proj"}, "forged"};
  tiny.run(tiny.config("auto", with(kTen, kAuto)));
  forge_choice(tiny.folder("auto"), 10, to_json(choice));
  const std::string printed = printed_by(tiny.config("auto", with(kTwenty, kAuto)));
  EXPECT_THAT(printed, HasSubstr("recipe: auto, which is float8_rowwise: forged"));
  EXPECT_THAT(printed, HasSubstr("(skipped: in recipe.filter.exclude)"));
  EXPECT_EQ(Json::parse_file(tiny.folder("auto") / "recipe.json").at("recipe").at("filter").at("exclude"),
            Json::parse(R"(["lm_head", "*.down_proj"])"));

  // The same by hand.
  tiny.run(tiny.config("named", kTen));
  tiny.run(
      tiny.config("named", with(kTwenty, {"--recipe.name=float8_rowwise", "--recipe.filter.exclude=lm_head,*.down_proj",
                                          "--checkpoint.allow_changes=recipe.name,recipe.filter.exclude"})));
  EXPECT_EQ(tiny.losses("auto"), tiny.losses("named"));
  expect_same_tensors(tiny.checkpoint("auto", 20), tiny.checkpoint("named", 20));
  tiny.run(tiny.config("plain", kTwenty));
  EXPECT_NE(tiny.losses("auto"), tiny.losses("plain")) << "float8 leaves its mark";

  // And from there on: what was saved under the choice has it too; by number and by path as well.
  for (const std::string& from :
       {std::string("auto"), std::string("20"), tiny.checkpoint("auto", 20).string(), std::string("10")}) {
    const RunConfig config = tiny.config("auto", with(kTwenty, with(kAuto, {"--checkpoint.resume=" + from})));
    EXPECT_EQ(resolve_auto_recipe(config, Device{}).name, "float8_rowwise") << from;
  }
  EXPECT_EQ(resolve_auto_recipe(tiny.config("auto", with(kAuto, {"--checkpoint.resume=never"})), Device{}).name,
            "bf16");
}

TEST(AutoRecipe, CheckpointsOfAnotherRecipeHaveNoChoice) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", kTen));
  const std::string printed =
      printed_by(tiny.config("run", with(kTwenty, with(kAuto, {"--checkpoint.allow_changes=recipe.name"}))));
  EXPECT_THAT(printed, HasSubstr("which is f32 (recipe bf16"));
}

TEST(AutoRecipe, DamagedChoiceIsNamed) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", with(kTen, kAuto)));
  forge_choice(tiny.folder("run"), 10, Json::parse(R"({"name": "float9", "exclude": [], "reason": ""})"));
  try {
    tiny.run(tiny.config("run", with(kTwenty, kAuto)));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("float9"));
    EXPECT_THAT(error.what(), HasSubstr("step-10"));
  }
}

TEST(AutoRecipe, OtherNamesAreTheirOwnChoice) {
  const TinyRun tiny;
  EXPECT_EQ(resolve_auto_recipe(tiny.config("run", {"--recipe.name=float8_rowwise"}), Device{}).name, "float8_rowwise");
}

TEST(AutoRecipe, EstimateAssumesBf16AndSaysSo) {
  const TinyRun tiny;
  const RunEstimate estimate = estimate_run(ResolvedConfig(tiny.config("run", kAuto)), Device{});
  EXPECT_EQ(estimate.recipe, "bf16");
  EXPECT_TRUE(estimate.recipe_assumed);
  EXPECT_THAT(to_string(estimate), HasSubstr("recipe.name is \"auto\""));
  const RunEstimate named = estimate_run(ResolvedConfig(tiny.config("run")), Device{});
  EXPECT_FALSE(named.recipe_assumed);
  EXPECT_EQ(estimate.device.peak, named.device.peak);
}

}  // namespace
}  // namespace quench
