#include "recipes/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/key_error.h"
#include "nn/decoder/causal_lm.h"
#include "tests/recipes/recipe_testing.h"

namespace quench::recipes {
namespace {

using testing::conversion_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

nn::ModelConfig tiny(bool tied) {
  Json json = Json::parse(R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1})");
  json.set("tie_word_embeddings", tied);
  return nn::parse_model_config(json, "config.json");
}

// A recipe that takes layers of 16 inputs and says why it leaves the others.
class NamedKernel final : public nn::LinearKernel {
 public:
  [[nodiscard]] std::string_view name() const override { return "narrow"; }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& w,
                                        const nn::Weight& b) const override {
    return nn::high_precision_linear_kernel()->run(call, w, b);
  }
};

const Recipe kNarrow{"narrow",
                     "for tests",
                     [](const nn::LinearInfo& layer, const RecipeOptions&) -> LinearPlan {
                       if (layer.in_features != 16) return {nullptr, "in_features is not 16"};
                       return {std::make_shared<NamedKernel>(), {}};
                     },
                     {}};

TEST(Convert, EveryLinearLayerGetsARow) {
  nn::CausalLm model(tiny(false), {});
  const auto rows = apply_recipe(model, kNarrow, {});
  ASSERT_EQ(rows.size(), 2u * 4 + 1);
  EXPECT_EQ(conversion_of(rows, "model.layers.1.self_attn.qkv_proj").kernel, "narrow");
  EXPECT_EQ(conversion_of(rows, "model.layers.0.mlp.down_proj").kernel, "high precision");
  EXPECT_EQ(conversion_of(rows, "model.layers.0.mlp.down_proj").skipped_because, "in_features is not 16");
  EXPECT_EQ(conversion_of(rows, "model.layers.0.mlp.gate_up_proj").out_features, 48);
}

TEST(Convert, FiltersMatchPathsAndPartsOfFusedLayers) {
  nn::CausalLm model(tiny(false), {});
  const auto rows = apply_recipe(model, kNarrow, {{"*.layers.0.*"}, {"*.gate_proj"}});
  EXPECT_EQ(conversion_of(rows, "model.layers.0.self_attn.qkv_proj").kernel, "narrow");
  EXPECT_EQ(conversion_of(rows, "model.layers.0.mlp.gate_up_proj").skipped_because, "in recipe.filter.exclude");
  EXPECT_EQ(conversion_of(rows, "model.layers.1.self_attn.qkv_proj").skipped_because, "not in recipe.filter.include");
  EXPECT_EQ(conversion_of(rows, "lm_head").skipped_because, "not in recipe.filter.include");
}

TEST(Convert, PatternsThatMatchNothingAreErrors) {
  nn::CausalLm model(tiny(false), {});
  try {
    (void)apply_recipe(model, kNarrow, {{}, {"*.q_porj"}});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("'*.q_porj' matches no linear layer"));
  }
}

TEST(Convert, RowsSayWhichProductsAreFloat8) {
  using enum LinearGemm;
  const auto products = [](std::string_view recipe, const RecipeOptions& options) {
    nn::CausalLm model(tiny(false), {});
    return conversion_of(apply_recipe(model, find_recipe(recipe), {{}, {"lm_head"}}, options),
                         "model.layers.0.self_attn.o_proj")
        .float8;
  };
  EXPECT_TRUE(products("bf16", {}).empty());
  EXPECT_EQ(products("float8_tensorwise", {}), (std::vector{forward, dgrad, wgrad}));
  EXPECT_EQ(products("float8_rowwise", {}), (std::vector{forward, dgrad, wgrad}));
  EXPECT_EQ(products("float8_rowwise_with_gw_hp", {}), (std::vector{forward, dgrad}));
  EXPECT_EQ(products("float8_rowwise", {.high_precision = {forward, wgrad}}), std::vector{dgrad});
  // Not of layers that are left out, for whatever reason.
  nn::CausalLm model(tiny(false), {});
  const auto rows = apply_recipe(model, find_recipe("float8_rowwise"), {{}, {"lm_head"}});
  EXPECT_TRUE(conversion_of(rows, "lm_head").float8.empty());
  EXPECT_FALSE(conversion_of(rows, "model.layers.0.mlp.down_proj").skipped_because.empty());  // 24 is no multiple of 16
  EXPECT_TRUE(conversion_of(rows, "model.layers.0.mlp.down_proj").float8.empty());
}

TEST(Convert, ATiedHeadMayBeNamed) {
  nn::CausalLm model(tiny(true), {});
  EXPECT_NO_THROW((void)apply_recipe(model, kNarrow, {{}, {"lm_head"}}));
}

TEST(Convert, ReportFoldsLayersOfAStack) {
  nn::CausalLm model(tiny(false), {});
  const std::string report = conversion_report(apply_recipe(model, kNarrow, {}));
  EXPECT_THAT(report, HasSubstr("model.layers.*.self_attn.qkv_proj"));
  EXPECT_THAT(report, HasSubstr("x2"));
  EXPECT_THAT(report, HasSubstr("(skipped: in_features is not 16)"));
  EXPECT_EQ(std::ranges::count(report, '\n'), 5);
}

TEST(Convert, ReportNamesTheLayersOfAStackThatAreSkippedAlone) {
  nn::CausalLm model(tiny(false), {});
  const std::string report = conversion_report(apply_recipe(model, kNarrow, {.include = {}, .skip_last_layers = 1}));
  EXPECT_THAT(report, HasSubstr("(skipped in 1: among recipe.filter.skip_last_layers)"));
  EXPECT_THAT(report, HasSubstr("(skipped in 0: in_features is not 16)"));
}

TEST(Convert, LayersOfMultiTokenPredictionAreNotAmongTheLast) {
  nn::ModelConfig config = nn::parse_model_config(
      Json::parse(R"({"model_type": "deepseek_v3", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
        "moe_intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "q_lora_rank": null, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "num_nextn_predict_layers": 1})"),
      "config.json");
  config.mtp.layers = config.mtp.declared;
  nn::CausalLm model(config, {});
  const auto rows = apply_recipe(model, kNarrow, {.include = {}, .skip_last_layers = 1});
  EXPECT_EQ(conversion_of(rows, "model.layers.0.self_attn.q_proj").kernel, "narrow");
  EXPECT_EQ(conversion_of(rows, "model.layers.1.self_attn.q_proj").skipped_because,
            "among recipe.filter.skip_last_layers");
  EXPECT_EQ(conversion_of(rows, "model.layers.2.self_attn.q_proj").kernel, "narrow");
}

// Message of require_layers for a conversion, beginning with the key; empty: none.
std::string refusal(const Recipe& recipe, const LayerFilter& filter, const RecipeOptions& options = {}) {
  nn::CausalLm model(tiny(false), {});
  try {
    require_layers(recipe, apply_recipe(model, recipe, filter, options));
  } catch (const KeyError& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_TRUE(std::string_view(error.what()).starts_with(error.key() + ": ")) << error.what();
    return error.what();
  }
  return {};
}

TEST(Convert, ARecipeThatTakesNoLayerIsRefused) {
  EXPECT_EQ(refusal(kNarrow, {}), "");
  EXPECT_THAT(refusal(kNarrow, {{"*.down_proj"}, {}}), StartsWith("recipe.name: recipe narrow applies to no layer"));
  EXPECT_THAT(refusal(kNarrow, {{"*.down_proj"}, {}}), HasSubstr("in_features is not 16"));
  EXPECT_THAT(refusal(kNarrow, {{}, {"*"}}), HasSubstr("recipe narrow applies to no layer"));
  EXPECT_EQ(refusal(kBf16, {{}, {"*"}}), "");
}

TEST(Convert, LayersThatCannotBeTrainedForTheirBitsAreRefusedByName) {
  const std::string reason = refusal(kQatInt4WeightOnly, {{}, {"lm_head"}}, {.group_size = 16});
  EXPECT_THAT(reason, StartsWith("recipe.group_size: recipe qat_int4_weight_only cannot take 2 of the 8 layers"));
  EXPECT_THAT(reason, HasSubstr("model.layers.*.mlp.down_proj in layers 0-1, 24 inputs: recipe.group_size 16 does not "
                                "divide its 24 inputs; 8, 12, 24 and 0 (the whole row) would fit"));
  EXPECT_EQ(refusal(kQatInt4WeightOnly, {{}, {"lm_head"}}, {.group_size = 8}), "");
  EXPECT_EQ(refusal(kQatInt4WeightOnly, {{}, {"lm_head", "*.down_proj"}}, {.group_size = 16}), "");
}

TEST(Convert, Globs) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("a*c", "abbc"));
  EXPECT_TRUE(glob_matches("*.q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(glob_matches("?b*", "abc"));
  EXPECT_FALSE(glob_matches("a*c", "abcd"));
  EXPECT_FALSE(glob_matches("", "a"));
  // Many stars must not take exponential time.
  EXPECT_FALSE(glob_matches("*a*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

TEST(RecipeTable, UnknownNamesListTheKnownOnes) {
  EXPECT_EQ(find_recipe("bf16").name, "bf16");
  try {
    (void)find_recipe("fp7");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), HasSubstr("known: bf16"));
  }
}

}  // namespace
}  // namespace quench::recipes
