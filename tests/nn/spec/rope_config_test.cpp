// Rotary settings in each of the forms that config.json has had, next to each other: as Transformers 5.24 reads them.

#include <gmock/gmock.h>

#include "nn/modules/rope_table.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;
using testing::parsed;

Json rope_model() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256})");
}

struct RopeMember {
  const char* key;
  const char* value;
};

Json with(std::initializer_list<RopeMember> members) {
  Json json = rope_model();
  for (const auto& [key, value] : members) json.set(key, Json::parse(value));
  return json;
}

constexpr const char* kYarn = R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})";

TEST(RopeConfig, RopeScalingReplacesRopeParameters) {
  const auto alone =
      rope_inverse_frequencies(parsed(with({{"rope_scaling", kYarn}})).block(0).attention.rotary.value());
  for (const char* parameters :
       {R"({"rope_theta": 10000.0, "rope_type": "default"})", R"({"rope_type": "linear", "factor": 2.0})", "{}", "null",
        R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0})",
        R"({"full_attention": {"rope_type": "default", "rope_theta": 10000.0}})"}) {
    const ModelConfig c = parsed(with({{"rope_parameters", parameters}, {"rope_scaling", kYarn}}));
    EXPECT_EQ(c.rope.type, RopeScaling::Type::yarn) << parameters;
    EXPECT_EQ(rope_inverse_frequencies(c.block(0).attention.rotary.value()), alone) << parameters;
  }
}

TEST(RopeConfig, EmptyRopeScalingLeavesRopeParameters) {
  for (const char* scaling : {"null", "{}"}) {
    const ModelConfig c =
        parsed(with({{"rope_parameters", R"({"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0})"},
                     {"rope_scaling", scaling}}));
    EXPECT_EQ(c.rope.type, RopeScaling::Type::linear) << scaling;
    EXPECT_DOUBLE_EQ(c.rope.theta, 5e5) << scaling;
  }
}

TEST(RopeConfig, DefaultRopeScalingReplacesARescaling) {
  const ModelConfig c =
      parsed(with({{"rope_parameters", R"({"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0})"},
                   {"rope_scaling", R"({"rope_type": "default"})"}}));
  EXPECT_EQ(c.rope.type, RopeScaling::Type::standard);
}

TEST(RopeConfig, BaseFrequencyComesFromTheAppliedSettingsThenTheTopLevel) {
  const auto theta = [](std::initializer_list<RopeMember> members) { return parsed(with(members)).rope.theta; };
  EXPECT_DOUBLE_EQ(theta({{"rope_theta", "7.0"}, {"rope_scaling", kYarn}}), 7.0);
  EXPECT_DOUBLE_EQ(
      theta({{"rope_theta", "7.0"}, {"rope_scaling", R"({"type": "linear", "factor": 2, "rope_theta": 3.0})"}}), 3.0);
  EXPECT_DOUBLE_EQ(
      theta({{"rope_theta", "7.0"}, {"rope_parameters", R"({"rope_type": "default", "rope_theta": 5e5})"}}), 5e5);
  EXPECT_DOUBLE_EQ(theta({{"rope_theta", "7.0"}, {"rope_parameters", R"({"rope_type": "default"})"}}), 7.0);
  EXPECT_DOUBLE_EQ(theta({{"rope_theta", "5e5"},
                          {"rope_parameters", R"({"rope_type": "default", "rope_theta": 5e5})"},
                          {"rope_scaling", kYarn}}),
                   5e5);
}

// Transformers takes the default, 10000, or the top level's, and loses the one in rope_parameters.
TEST(RopeConfig, BaseFrequencyThatRopeScalingWouldLoseIsRefused) {
  for (const char* parameters : {R"({"rope_theta": 5e5, "rope_type": "default"})",
                                 R"({"full_attention": {"rope_type": "default", "rope_theta": 5e5}})"}) {
    const std::string message = fault_of(with({{"rope_parameters", parameters}, {"rope_scaling", kYarn}}));
    EXPECT_THAT(message, HasSubstr("rope_parameters: rope_theta 500000")) << parameters;
    EXPECT_THAT(message, HasSubstr("contradicts 10000")) << parameters;
  }
}

TEST(RopeConfig, OriginalLengthIsReadWhereTransformersReadsIt) {
  EXPECT_EQ(parsed(with({{"rope_scaling", kYarn}, {"original_max_position_embeddings", "32"}}))
                .rope.original_max_position_embeddings,
            64);
  EXPECT_THAT(fault_of(with({{"rope_scaling", R"({"rope_type": "yarn", "factor": 4.0})"},
                             {"original_max_position_embeddings", "32"}})),
              HasSubstr("original_max_position_embeddings: Transformers reads it in rope_scaling and takes 256"));
}

TEST(RopeConfig, SettingsThatAreNoObjectAreRefusedByTheirName) {
  EXPECT_THAT(fault_of(with({{"rope_scaling", "\"yarn\""}})), HasSubstr("rope_scaling: expected an object, got "));
  EXPECT_THAT(fault_of(with({{"rope_parameters", "4"}})), HasSubstr("rope_parameters: expected an object, got "));
}

}  // namespace
}  // namespace quench::nn
