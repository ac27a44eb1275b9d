// Adding a recipe: from its name in a config to its products. The shared tests of recipes run over it as well
// (tests/recipes/recipe_table_test.cpp).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/seams/added_recipe.h"
#include "tests/seams/refusal.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/config/fields/field.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::refusal;
using testing::TinyRun;

const std::vector<std::string> kTen{"--training.steps=10", "--recipe.filter.exclude=lm_head,*.down_proj"};

std::vector<std::string> with(std::vector<std::string> overrides, const std::string& one) {
  overrides.push_back(one);
  return overrides;
}

TEST(AddedRecipe, ComputesTheLayersOfARun) {
  const TinyRun tiny;
  const RunConfig config = tiny.config("added", with(kTen, "--recipe.name=int3_rows"));
  const ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  for (const recipes::LayerConversion& row : setup.conversion)
    EXPECT_EQ(row.kernel == "int3_rows", !row.name.ends_with("down_proj")) << row.name << ": " << row.kernel;
  tiny.run(config);
  tiny.run(tiny.config("plain", kTen));
  EXPECT_EQ(tiny.losses("added").size(), 10u);
  EXPECT_NE(tiny.losses("added"), tiny.losses("plain"));
  EXPECT_EQ(Json::parse_file(tiny.folder("added") / "config.json").at("recipe").at("name").as_string(), "int3_rows");
}

TEST(AddedRecipe, IsNamedInConfigsAndErrors) {
  const TinyRun tiny;
  EXPECT_THAT(find_field("recipe.name")->type, HasSubstr("int3_rows"));
  EXPECT_THAT(refusal([&] { (void)tiny.config("x", {"--recipe.name=int3_row"}); }), HasSubstr("int3_rows"));
  EXPECT_THAT(refusal([] { (void)recipes::find_recipe("fp7"); }), HasSubstr("int3_rows"));
  // It declares which keys act on it.
  EXPECT_THAT(refusal([&] {
                (void)tiny.config("x", {"--recipe.name=int3_rows", "--recipe.emulate"});
              }),
              HasSubstr("recipe.name int3_rows does not use it"));
}

}  // namespace
}  // namespace quench
