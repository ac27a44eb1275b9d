#include "train/probe/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "train/check/load.h"
#include "train/config/resolved_config.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const std::string kA = "float8_tensorwise", kB = "float8_rowwise";

// Times of two kinds of layer in bf16 and under two recipes; negative: the recipe does not convert the kind.
std::vector<LayerTimes> layer_times(double qkv, double qkv_a, double qkv_b, double down, double down_a, double down_b) {
  const auto kind = [](const char* name, double bf16, double a, double b) {
    LayerTimes layer{{.name = name, .in_features = 64, .out_features = 64}, bf16, {}};
    for (const auto& [recipe, time] : {std::pair{kA, a}, std::pair{kB, b}})
      layer.recipes.push_back({recipe, std::max(time, 0.0), time < 0 ? "shape" : ""});
    return layer;
  };
  return {kind("qkv_proj", qkv, qkv_a, qkv_b), kind("down_proj", down, down_a, down_b)};
}

LayerError error_of(int layer, const std::string& kind, const std::string& recipe, ProductErrors errors) {
  const std::string block = kind == "down_proj" ? "mlp" : "self_attn";
  return {fmt::format("model.layers.{}.{}.{}", layer, block, kind), recipe, errors};
}

Words patterns(const std::vector<Exclusion>& exclusions) {
  Words result;
  for (const Exclusion& exclusion : exclusions) result.push_back(exclusion.pattern);
  return result;
}

TEST(ProbeChoice, SlowKindsAreExcludedAndEqualOnesToo) {
  const auto layers = layer_times(10, 8, 10, 10, 12, 9);
  EXPECT_THAT(patterns(exclusions(kA, layers, {}, {}, false)), ElementsAre("*.down_proj"));
  EXPECT_THAT(patterns(exclusions(kB, layers, {}, {}, false)), ElementsAre("*.qkv_proj"));
  EXPECT_EQ(exclusions(kB, layers, {}, {}, false)[0].why, Excluded::by_time);
}

TEST(ProbeChoice, KindsThatARecipeDoesNotConvertNeedNoPattern) {
  EXPECT_TRUE(exclusions(kA, layer_times(10, -1, 8, 10, 8, 8), {}, {}, false).empty());
}

TEST(ProbeChoice, SingleLayersBeyondTheBoundAreNamedAndMostOfAKindIsTheKind) {
  const auto layers = layer_times(10, 8, 8, 10, 8, 8);
  std::vector<LayerError> errors;
  for (int i = 0; i < 4; ++i) {
    errors.push_back(error_of(i, "qkv_proj", kA, {.y = 0.04, .dx = 0.06, .dw = i == 1 ? 0.2 : 0.06}));
    errors.push_back(error_of(i, "down_proj", kA, {.y = i == 3 ? 0.04 : 0.09, .dx = 0.06, .dw = 0.06}));
    errors.push_back(error_of(i, "qkv_proj", kB, {.y = 0.04, .dx = 0.04, .dw = 0.04}));
  }
  const auto found = exclusions(kA, layers, errors, {}, false);
  EXPECT_THAT(patterns(found), ElementsAre("model.layers.1.self_attn.qkv_proj", "*.down_proj"));
  EXPECT_EQ(found[0].why, Excluded::by_error);
  EXPECT_TRUE(exclusions(kB, layers, errors, {}, false).empty()) << "errors of another recipe";
  // One bad layer in a sample of the layers is enough, and its name says nothing.
  EXPECT_THAT(patterns(exclusions(kA, layers, errors, {}, true)), ElementsAre("*.qkv_proj", "*.down_proj"));
  // Half of the layers are still named one by one.
  errors[1].errors.y = 0.04;
  EXPECT_THAT(
      patterns(exclusions(kA, layers, errors, {}, false)),
      ElementsAre("model.layers.1.self_attn.qkv_proj", "model.layers.1.mlp.down_proj", "model.layers.2.mlp.down_proj"));
}

TEST(ProbeChoice, BoundTakesItsOwnValueAndNotNaN) {
  const ErrorBound bound{.output = 0.1};
  EXPECT_TRUE(bound.allows({.y = 0.1, .dx = 0.2, .dw = 0.2}));
  EXPECT_FALSE(bound.allows({.y = 0.1001, .dx = 0, .dw = 0}));
  EXPECT_FALSE(bound.allows({.y = 0, .dx = 0.2001, .dw = 0}));
  EXPECT_FALSE(bound.allows({.y = 0, .dx = 0, .dw = 0.2001}));
  for (double ProductErrors::*product : {&ProductErrors::y, &ProductErrors::dx, &ProductErrors::dw}) {
    ProductErrors errors;
    errors.*product = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(bound.allows(errors));
    errors.*product = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(bound.allows(errors));
  }
}

TEST(ProbeChoice, CandidatesAreBf16AndEachRecipeWithAndWithoutItsSlowLayers) {
  const auto candidates = make_candidates({kA, kB}, layer_times(10, 8, 7, 10, 12, 9), {}, {}, false);
  ASSERT_EQ(candidates.size(), 4u);
  EXPECT_EQ(candidates[0].recipe, "bf16");
  EXPECT_EQ(candidates[1].recipe, kA);
  EXPECT_THAT(candidates[1].exclude, ElementsAre());
  EXPECT_EQ(candidates[2].recipe, kA);
  EXPECT_THAT(candidates[2].exclude, ElementsAre("*.down_proj"));
  EXPECT_EQ(candidates[3].recipe, kB);
}

TEST(ProbeChoice, EveryCandidateKeepsTheBound) {
  const std::vector<LayerError> errors{error_of(0, "qkv_proj", kA, {.y = 0.5, .dx = 0, .dw = 0})};
  const auto candidates = make_candidates({kA}, layer_times(10, 8, 8, 10, 12, 8), errors, {}, false);
  // Without the layer beyond the bound; without the slow one too nothing would be left.
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_THAT(candidates[1].exclude, ElementsAre("*.qkv_proj"));
}

TEST(ProbeChoice, RecipesThatConvertNothingAreNoCandidates) {
  EXPECT_EQ(make_candidates({kA}, layer_times(10, -1, 8, 10, -1, 8), {}, {}, false).size(), 1u);
  const std::vector<LayerError> errors{error_of(0, "qkv_proj", kA, {.y = 1, .dx = 1, .dw = 1}),
                                       error_of(0, "down_proj", kA, {.y = 1, .dx = 1, .dw = 1})};
  EXPECT_EQ(make_candidates({kA}, layer_times(10, 8, 8, 10, 8, 8), errors, {}, false).size(), 1u);
  // All layers slow alone: as a whole the recipe is still looked at.
  const auto slow = make_candidates({kA}, layer_times(10, 11, 8, 10, 11, 8), {}, {}, false);
  ASSERT_EQ(slow.size(), 2u);
  EXPECT_THAT(slow[1].exclude, ElementsAre());
}

TEST(ProbeChoice, FastestWinsAndBf16KeepsWhatIsNoise) {
  const auto name = [](double a, double b) {
    return choose({{"bf16", {}, 100}, {kA, {"*.o_proj"}, a}, {kB, {}, b}}).name;
  };
  EXPECT_EQ(name(80, 70), kB);
  EXPECT_EQ(name(70, 80), kA);
  EXPECT_EQ(name(70, 70), kA) << "the first of equals";
  EXPECT_EQ(name(99.0, 120), kA);
  EXPECT_EQ(name(99.1, 120), "bf16");
  EXPECT_EQ(name(100, 100), "bf16");
  EXPECT_EQ(name(130, 120), "bf16");
}

TEST(ProbeChoice, ChoiceSaysWhatAndWhy) {
  const RecipeChoice fast = choose({{"bf16", {}, 100}, {kA, {"*.o_proj"}, 80}});
  EXPECT_THAT(fast.exclude, ElementsAre("lm_head", "*.o_proj"));
  EXPECT_EQ(fast.reason, "1.25 times as fast as bf16");
  const RecipeChoice slow = choose({{"bf16", {}, 100}, {kA, {}, 130}, {kB, {}, 125}});
  EXPECT_TRUE(slow.exclude.empty());
  EXPECT_THAT(slow.reason, HasSubstr(kB + ", the fastest of the others, runs at 0.80 of its speed"));
  EXPECT_THAT(choose({{"bf16", {}, 100}}).reason, HasSubstr("no recipe may convert"));
}

RunConfig config(const std::string& recipe) {
  return parse_run_config(
      R"({"model": {"preset": "tiny"}, "data": {"seq_len": 64}, "training": {"steps": 1}, "recipe": )" + recipe + "}",
      "c", {}, {.data = false, .files = false});
}

TEST(RecipeChoice, ReplacesAutoAndNothingElse) {
  const RecipeChoice choice{kA, {"lm_head", "*.o_proj"}, "because"};
  const ResolvedConfig chosen(config(R"({"name": "auto", "filter": {"exclude": ["lm_head", "*.layers.0.*"]}})"),
                              choice);
  EXPECT_EQ(chosen->recipe.name, kA);
  EXPECT_EQ(chosen.choice()->reason, "because");
  EXPECT_THAT(chosen->recipe.filter.exclude, ::testing::Optional(ElementsAre("lm_head", "*.layers.0.*", "*.o_proj")));
  const RunConfig named = config(R"({"name": "float8_rowwise"})");
  EXPECT_EQ(*ResolvedConfig(named, choice), named);
  EXPECT_FALSE(ResolvedConfig(named, choice).choice());
}

TEST(RecipeChoice, BeforeItIsMadeAutoIsBf16) {
  // Rounding that bf16 does not have goes with the choice.
  const ResolvedConfig early(config(R"({"name": "auto", "gradient_rounding": "stochastic"})"));
  EXPECT_EQ(early->recipe.name, "bf16");
  EXPECT_EQ(early->recipe.gradient_rounding, RecipeSection::GradientRounding::nearest);
  EXPECT_TRUE(early.choice());
  EXPECT_THROW((void)ResolvedConfig(config(R"({"name": "auto"})"), {"auto", {}, ""}), Error)
      << "a choice is a recipe's name";
}

TEST(RecipeChoice, SectionReadsBackAsTheSame) {
  const ResolvedConfig chosen(
      config(R"({"name": "auto", "filter": {"include": ["*.mlp.*"], "skip_first_layers": 1, "skip_last_layers": 1}})"),
      {kA, {"*.down_proj"}, ""});
  const Json section = recipe_section(chosen);
  EXPECT_EQ(config(section.at("recipe").dump()).recipe, chosen->recipe);
}

TEST(RecipeChoice, JsonKeepsItAndDamageIsNamed) {
  const RecipeChoice choice{kB, {"lm_head", "*.o_proj"}, "1.2 times"};
  const RecipeChoice again = recipe_choice_from_json(Json::parse(to_json(choice).dump()), "here");
  EXPECT_EQ(again.name, choice.name);
  EXPECT_EQ(again.exclude, choice.exclude);
  EXPECT_EQ(again.reason, choice.reason);
  for (const char* damaged : {"[]", "null", "{}", R"({"name": "auto", "exclude": [], "reason": ""})",
                              R"({"name": "bf16", "exclude": "lm_head", "reason": ""})",
                              R"({"name": "bf16", "exclude": [1], "reason": ""})"}) {
    try {
      (void)recipe_choice_from_json(Json::parse(damaged), "step-9");
      ADD_FAILURE() << damaged << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << damaged;
      EXPECT_THAT(error.what(), HasSubstr("step-9")) << damaged;
    }
  }
}

}  // namespace
}  // namespace quench
