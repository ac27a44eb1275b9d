// Types of a model's layers that a run trains for.

#include <gmock/gmock.h>

#include "export/table/mixed_types.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"
#include "tests/testing.h"

namespace quench {
namespace {

using recipes::kQatGguf;
using recipes::RecipeOptions;
using ::testing::HasSubstr;

nn::ModelConfig tied_llama() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 256,
      "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
      "tie_word_embeddings": true, "max_position_embeddings": 64})"),
                                "test");
}

// Q4_K_M: values and down projections of some layers in Q6_K, and so is the table that is the head.
TEST(GgufTypesOfModels, AMixGivesEachPartOfAModelItsType) {
  nn::CausalLm model(tied_llama(), {.dtype = DType::f32, .device = {DeviceType::meta, 0}});
  RecipeOptions options;
  choose_gguf_types(options, kQatGguf, model);
  ASSERT_NE(options.gguf_types, nullptr);
  const auto type = [&](const std::string& layer) { return block_format(options.gguf_types->at(layer)).name; };
  EXPECT_EQ(type("model.embed_tokens"), "Q6_K");
  EXPECT_EQ(type("model.layers.0.self_attn.q_proj"), "Q4_K");
  EXPECT_EQ(type("model.layers.0.self_attn.v_proj"), "Q6_K");
  EXPECT_EQ(type("model.layers.1.self_attn.v_proj"), "Q4_K");
  EXPECT_EQ(type("model.layers.7.mlp.down_proj"), "Q6_K");
  const auto conversion = recipes::apply_recipe(model, kQatGguf, {}, options);
  const std::string report = recipes::conversion_report(conversion);
  EXPECT_THAT(report, HasSubstr("qat_gguf (Q4_K, Q6_K)"));
  EXPECT_THAT(report, HasSubstr("model.embed_tokens"));
  EXPECT_THAT(report, ::testing::Not(HasSubstr("skipped")));
}

TEST(GgufTypesOfModels, AnUntiedHeadHasItsTypeUnlessItIsExcluded) {
  nn::ModelConfig config = tied_llama();
  config.tie_word_embeddings = false;
  nn::CausalLm model(config, {.dtype = DType::f32, .device = {DeviceType::meta, 0}});
  RecipeOptions options;
  choose_gguf_types(options, kQatGguf, model);
  const auto type = [&](const std::string& layer) { return block_format(options.gguf_types->at(layer)).name; };
  EXPECT_EQ(type("model.embed_tokens"), "Q4_K");
  EXPECT_EQ(type("lm_head"), "Q6_K");
  const auto report = [&](std::vector<std::string> exclude) {
    nn::CausalLm converted(config, {.dtype = DType::f32, .device = {DeviceType::meta, 0}});
    return recipes::conversion_report(
        recipes::apply_recipe(converted, kQatGguf, {.exclude = std::move(exclude)}, options));
  };
  EXPECT_THAT(report(recipes::default_exclusions(kQatGguf)), ::testing::Not(HasSubstr("skipped")));
  EXPECT_THAT(report({"lm_head"}), HasSubstr("skipped: in recipe.filter.exclude"));
  EXPECT_THAT(recipes::default_exclusions(recipes::kQatInt8), ::testing::ElementsAre("lm_head"));
}

TEST(GgufTypesOfModels, SchemesOfOtherFormatsAreRefused) {
  nn::CausalLm model(tied_llama(), {.dtype = DType::f32, .device = {DeviceType::meta, 0}});
  RecipeOptions options{.gguf_scheme = "int4_weight_only_g32"};
  try {
    choose_gguf_types(options, kQatGguf, model);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("int4_weight_only_g32 is no type or mix of GGUF files"));
  }
  options.gguf_scheme = "q4_k_m";
  options.rules = {{.pattern = "*.up_proj", .scheme = "iq2_xs"}};
  try {
    choose_gguf_types(options, kQatGguf, model);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(),
                HasSubstr("recipe.rules: model.layers.0.mlp.up_proj as iq2_xs needs an importance matrix"));
  }
  options.rules.clear();
  options.gguf_scheme = "iq2_m";
  try {
    choose_gguf_types(options, kQatGguf, model);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("recipe.gguf_scheme iq2_m: some of its types need an importance matrix"));
  }
}

}  // namespace
}  // namespace quench
