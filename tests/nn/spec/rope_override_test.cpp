// RoPE settings that replace a model's: over each spelling of config.json, by family, and what is refused of them.

#include "nn/spec/rope_override.h"

#include <gmock/gmock.h>

#include "nn/modules/rope_table.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parsed;

Json small_model(std::string_view more = "{}") {
  Json json = Json::parse(R"({"model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "max_position_embeddings": 256})");
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) json.set(key, value);
  return json;
}

ModelConfig rescaled(Json model, std::string_view settings) {
  const Json given = Json::parse(settings);
  EXPECT_THAT(rope_override_faults(given, model), IsEmpty()) << settings;
  override_rope(given, model);
  return parsed(model);
}

std::string fault_over(const Json& model, std::string_view settings) {
  const std::vector<std::string> faults = rope_override_faults(Json::parse(settings), model);
  return faults.empty() ? "" : faults.front();
}

constexpr const char* kFourfold = R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})";

TEST(RopeOverride, TheContextGrowsByTheFactorFromTheModelsOwn) {
  for (const char* type : {"yarn", "linear"}) {
    const ModelConfig c =
        rescaled(small_model(), fmt::format(R"({{"rope_scaling": {{"rope_type": "{}", "factor": 4}}}})", type));
    EXPECT_EQ(c.max_position_embeddings, 1024) << type;
    EXPECT_EQ(unscaled_length(c), 256) << type;
  }
  const ModelConfig given = rescaled(
      small_model(), R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}, "max_position_embeddings": 512})");
  EXPECT_EQ(given.max_position_embeddings, 512);
  EXPECT_EQ(given.rope.original_max_position_embeddings, 256);
  const ModelConfig implied =
      rescaled(small_model(), R"({"rope_scaling": {"rope_type": "yarn"}, "max_position_embeddings": 2048})");
  EXPECT_DOUBLE_EQ(implied.rope.factor, 8.0);
  const ModelConfig dynamic = rescaled(small_model(), R"({"rope_scaling": {"rope_type": "dynamic", "factor": 4}})");
  EXPECT_EQ(dynamic.max_position_embeddings, 256);
  EXPECT_EQ(dynamic.context_length(), 1024);
}

TEST(RopeOverride, TheBaseFrequencyOfTheModelStaysInEverySpelling) {
  for (const char* model :
       {R"({"rope_theta": 5e5})", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})",
        R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})",
        R"({"rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 5e5}})"}) {
    const ModelConfig c = rescaled(small_model(model), kFourfold);
    EXPECT_EQ(c.rope.type, RopeScaling::Type::yarn) << model;
    EXPECT_DOUBLE_EQ(c.rope.theta, 5e5) << model;
    EXPECT_DOUBLE_EQ(rescaled(small_model(model), R"({"rope_theta": 7e6})").rope.theta, 7e6) << model;
    EXPECT_DOUBLE_EQ(
        rescaled(small_model(model), R"({"rope_theta": 7e6, "rope_parameters": {"rope_type": "linear", "factor": 2}})")
            .rope.theta,
        7e6)
        << model;
  }
}

TEST(RopeOverride, AnotherScalingStartsFromTheLengthBeforeTheModels) {
  const char* const llama3 =
      R"({"max_position_embeddings": 2048, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}})";
  const ModelConfig c = rescaled(small_model(llama3), R"({"rope_scaling": {"rope_type": "yarn", "factor": 32}})");
  EXPECT_EQ(c.rope.original_max_position_embeddings, 256);
  EXPECT_EQ(c.max_position_embeddings, 8192);
  EXPECT_EQ(c.rope.high_freq_factor, RopeScaling().high_freq_factor);
  const ModelConfig none = rescaled(small_model(llama3), R"({"rope_scaling": {"rope_type": "default"}})");
  EXPECT_EQ(none.rope.type, RopeScaling::Type::standard);
  EXPECT_EQ(none.max_position_embeddings, 256);
  const char* const linear =
      R"({"max_position_embeddings": 1024, "rope_scaling": {"rope_type": "linear", "factor": 4.0}})";
  EXPECT_EQ(rescaled(small_model(linear), R"({"rope_scaling": {"rope_type": "linear", "factor": 8}})")
                .max_position_embeddings,
            2048);
}

// A resumed run reads its own model folder, or the one it began with.
TEST(RopeOverride, TheSameSettingsAgainChangeNothing) {
  for (const char* settings :
       {kFourfold, R"({"rope_scaling": {"rope_type": "linear", "factor": 2.5}})",
        R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})", R"({"rope_theta": 1e6})",
        R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}})",
        R"({"rope_scaling": {"rope_type": "longrope", "factor": 2, "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
            "long_factor": [1, 2, 3, 4, 5, 6, 7, 8]}})"}) {
    Json once = small_model();
    override_rope(Json::parse(settings), once);
    Json twice = once;
    override_rope(Json::parse(settings), twice);
    EXPECT_TRUE(same_ropes(parsed(once), parsed(twice))) << settings;
    EXPECT_EQ(parsed(once).max_position_embeddings, parsed(twice).max_position_embeddings) << settings;
    const ModelConfig exported = parsed(to_hf_json(parsed(once), DType::f32));
    EXPECT_TRUE(same_ropes(exported, parsed(once))) << settings;
    Json thrice = to_hf_json(parsed(once), DType::f32);
    override_rope(Json::parse(settings), thrice);
    EXPECT_TRUE(same_ropes(parsed(thrice), parsed(once))) << settings;
    EXPECT_EQ(parsed(thrice).max_position_embeddings, parsed(once).max_position_embeddings) << settings;
  }
}

TEST(RopeOverride, FamiliesKeepWhatIsTheirOwn) {
  const ModelConfig glm = rescaled(
      small_model(R"({"model_type": "glm4", "rope_parameters": {"rope_theta": 5e4, "partial_rotary_factor": 0.5}})"),
      kFourfold);
  EXPECT_EQ(glm.block(0).attention.rotary->dim, 8);
  EXPECT_EQ(glm.rope.type, RopeScaling::Type::yarn);

  for (const char* gemma :
       {R"({"model_type": "gemma3_text", "sliding_window": 8, "rope_theta": 2e6, "rope_local_base_freq": 5e3})",
        R"({"model_type": "gemma3_text", "sliding_window": 8, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}})"})
    for (const char* settings : {kFourfold, R"({"rope_parameters": {"rope_type": "yarn", "factor": 4}})"}) {
      const ModelConfig c = rescaled(small_model(gemma), settings);
      EXPECT_EQ(c.rope.type, RopeScaling::Type::yarn) << gemma << settings;
      EXPECT_DOUBLE_EQ(c.rope.factor, 4.0) << gemma << settings;
      EXPECT_DOUBLE_EQ(c.rope.theta, 2e6) << gemma << settings;
      ASSERT_TRUE(c.local_rope.has_value());
      EXPECT_EQ(c.local_rope->type, RopeScaling::Type::standard);
      EXPECT_DOUBLE_EQ(c.local_rope->theta, 5e3) << gemma << settings;
    }

  const ModelConfig phi = rescaled(small_model(R"({"model_type": "phi3", "original_max_position_embeddings": 256})"),
                                   R"({"rope_scaling": {"type": "su", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                                       "long_factor": [1, 2, 3, 4, 5, 6, 7, 8]}, "max_position_embeddings": 1024})");
  EXPECT_EQ(phi.rope.type, RopeScaling::Type::longrope);
  EXPECT_EQ(phi.rope.original_max_position_embeddings, 256);
  EXPECT_DOUBLE_EQ(phi.rope.factor, 4.0);
}

TEST(RopeOverride, SettingsOfAWholeArchitectureAreAsGiven) {
  Json empty = Json::object();
  override_rope(small_model(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})"), empty);
  EXPECT_EQ(parsed(empty).max_position_embeddings, 256);
  EXPECT_EQ(parsed(empty).rope.original_max_position_embeddings, 256);
}

TEST(RopeOverride, FaultsNameTheMember) {
  const auto fault = [](std::string_view scaling, std::string_view more = "") {
    return fault_over(small_model(), fmt::format(R"({{"rope_scaling": {}{}}})", scaling, more));
  };
  EXPECT_EQ(fault(R"({"rope_type": "linear", "factor": 0.5})"), "factor: 0.5 is below 1, which shortens the context");
  EXPECT_EQ(fault(R"({"rope_type": "spiral", "factor": 2})"),
            "rope_type: 'spiral' is not supported; known: default, linear, dynamic, yarn, llama3, longrope");
  EXPECT_THAT(fault(R"({"rope_type": "linear"})"), HasSubstr("factor: is missing; rotary scaling 'linear' needs it"));
  EXPECT_THAT(fault(R"({"rope_type": "linear", "factor": "two"})"), HasSubstr("factor: expected a number, got string"));
  EXPECT_THAT(fault(R"({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2})"),
              HasSubstr("beta_fast: 1 is smaller than beta_slow, 2"));
  EXPECT_THAT(fault(R"({"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 1})"),
              HasSubstr("high_freq_factor: must not be smaller than low_freq_factor"));
  EXPECT_EQ(
      fault(R"({"rope_type": "longrope", "factor": 2, "short_factor": [1], "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]})"),
      "short_factor: expected a list of 8 positive numbers, one a pair of rotated elements, got 1 of them");
  EXPECT_THAT(fault(R"({"rope_type": "yarn", "factor": 2})", R"(, "max_position_embeddings": 128)"),
              HasSubstr("original_max_position_embeddings: 256 exceeds max_position_embeddings 128"));
  EXPECT_THAT(fault(R"({"rope_type": "yarn", "factor": 2, "rope_theta": 5})", R"(, "rope_theta": 6)"),
              HasSubstr("rope_theta: 5 contradicts model.rope_theta 6"));
  EXPECT_THAT(fault_over(small_model(R"({"model_type": "gemma3_text"})"),
                         R"({"rope_scaling": {"rope_type": "longrope", "factor": 2}})"),
              HasSubstr("'longrope' is not supported; known: default, linear, dynamic, yarn, llama3"));
}

}  // namespace
}  // namespace quench::nn
