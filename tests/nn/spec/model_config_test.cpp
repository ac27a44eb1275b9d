#include "nn/spec/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/modules/rope_table.h"
#include "tests/nn/spec/config_testing.h"

namespace quench::nn {
namespace {

using testing::fault_of;
using ::testing::HasSubstr;

Json base() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256})");
}

TEST(ModelConfig, DefaultsApplyWhereKeysAreAbsentOrNull) {
  Json json = base();
  json.set("head_dim", nullptr);
  json.set("pad_token_id", nullptr);
  const ModelConfig c = parse_model_config(json, "config.json");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_FLOAT_EQ(c.rms_norm_eps, 1e-6f);
  EXPECT_DOUBLE_EQ(c.rope.theta, 10000.0);
  EXPECT_FALSE(c.pad_token_id.has_value());
  EXPECT_FALSE(c.qkv_bias);
  json.erase("num_key_value_heads");
  EXPECT_EQ(parse_model_config(json, "config.json").num_key_value_heads, 4);
}

// As the configuration classes of Transformers have them.
TEST(ModelConfig, AbsentMembersGetFamilyDefaults) {
  struct Case {
    const char* type;
    double theta, epsilon;
    std::int64_t positions;
  };
  for (const auto& [type, theta, epsilon, positions] : {Case{"llama", 1e4, 1e-6, 2048},
                                                        {"mistral", 1e4, 1e-6, 131072},
                                                        {"mixtral", 1e6, 1e-5, 131072},
                                                        {"qwen2", 1e4, 1e-6, 32768},
                                                        {"qwen3", 1e4, 1e-6, 32768},
                                                        {"qwen3_moe", 1e4, 1e-6, 32768},
                                                        {"llama4_text", 5e5, 1e-5, 131072},
                                                        {"gemma2", 1e4, 1e-6, 8192},
                                                        {"gemma3_text", 1e6, 1e-6, 131072},
                                                        {"gpt_oss", 150000.0, 1e-5, 131072},
                                                        {"olmo2", 1e4, 1e-5, 2048},
                                                        {"smollm3", 2e6, 1e-6, 32768},
                                                        {"granite", 1e4, 1e-6, 2048},
                                                        {"glm4", 1e4, 1.5625e-7, 131072},
                                                        {"phi3", 1e4, 1e-5, 4096},
                                                        {"qwen2_moe", 1e4, 1e-6, 32768}}) {
    Json json = base();
    json.erase("architectures");
    json.erase("max_position_embeddings");
    json.set("model_type", type);
    for (const char* rope : {"null", R"({"rope_type": "default"})"}) {
      json.set("rope_parameters", Json::parse(rope));
      const ModelConfig c = parse_model_config(json, "a");
      EXPECT_DOUBLE_EQ(c.rope.theta, theta) << type << " with rope_parameters " << rope;
      EXPECT_FLOAT_EQ(c.rms_norm_eps, static_cast<float>(epsilon)) << type;
      EXPECT_EQ(c.max_position_embeddings, positions) << type;
    }
  }
}

TEST(ModelConfig, RescalingWithoutItsFactorsIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"factor", R"({"rope_type": "linear"})"},
      {"factor", R"({"rope_type": "dynamic", "factor": null})"},
      {"factor", R"({"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0})"},
      {"low_freq_factor", R"({"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0})"},
      {"high_freq_factor", R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0})"},
  };
  for (const auto& [key, rope] : cases) {
    Json json = base();
    json.set("rope_scaling", Json::parse(rope));
    EXPECT_THAT(fault_of(json), HasSubstr(std::string(key) + ": is missing; rotary scaling '")) << rope;
  }
}

TEST(ModelConfig, BothSpellingsOfRopeAgree) {
  Json old_style = base();
  old_style.set("rope_theta", 500000.0);
  old_style.set("rope_scaling", Json::parse(R"({"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64})"));
  Json new_style = base();
  new_style.set("rope_parameters", Json::parse(R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})"));
  EXPECT_EQ(rope_inverse_frequencies(parse_model_config(old_style, "a").block(0).attention.rotary.value()),
            rope_inverse_frequencies(parse_model_config(new_style, "b").block(0).attention.rotary.value()));
}

TEST(ModelConfig, RopeScalingFormulas) {
  Json json = base();
  json.set("rope_scaling", Json::parse(R"({"rope_type": "linear", "factor": 4.0})"));
  const auto plain = rope_inverse_frequencies(parse_model_config(base(), "a").block(0).attention.rotary.value());
  const auto linear = rope_inverse_frequencies(parse_model_config(json, "b").block(0).attention.rotary.value());
  ASSERT_EQ(plain.size(), 8u);
  EXPECT_FLOAT_EQ(plain[0], 1.0f);
  EXPECT_FLOAT_EQ(plain[4], 0.01f);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(linear[i], plain[i] / 4);
  json.set("rope_scaling", Json::parse(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64})"));
  const auto scaled = rope_inverse_frequencies(parse_model_config(json, "c").block(0).attention.rotary.value());
  EXPECT_FLOAT_EQ(scaled[0], plain[0]) << "wavelength 6.3 < 64/4: kept";
  EXPECT_FLOAT_EQ(scaled[7], plain[7] / 8) << "wavelength beyond 64: divided";
}

TEST(ModelConfig, EndOfSequenceMayBeANumberOrAList) {
  Json json = base();
  json.set("eos_token_id", 2);
  EXPECT_EQ(parse_model_config(json, "a").eos_token_ids, (std::vector<std::int64_t>{2}));
  json.set("eos_token_id", Json::parse("[1, 8, 9]"));
  EXPECT_EQ(parse_model_config(json, "a").eos_token_ids, (std::vector<std::int64_t>{1, 8, 9}));
  json.set("eos_token_id", 128);
  EXPECT_THAT(fault_of(json), HasSubstr("outside the vocabulary of 128"));
}

TEST(ModelConfig, FamiliesSetTheirSwitches) {
  Json json = base();
  json.erase("model_type");
  json.set("architectures", Json::parse(R"(["Qwen2ForCausalLM"])"));
  EXPECT_TRUE(parse_model_config(json, "a").qkv_bias);
  json.set("architectures", Json::parse(R"(["Qwen3ForCausalLM"])"));
  const ModelConfig qwen3 = parse_model_config(json, "a");
  EXPECT_EQ(qwen3.block(0).attention.qk_norm, QkNorm::weighted);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128) << "Qwen3's default does not follow from the hidden size";
}

TEST(ModelConfig, UnknownArchitecturesAreRefusedWithTheListOfKnownOnes) {
  Json json = base();
  json.set("architectures", Json::parse(R"(["MambaForCausalLM"])"));
  const std::string message = fault_of(json, ErrorCode::unsupported);
  EXPECT_THAT(message, HasSubstr("MambaForCausalLM"));
  EXPECT_THAT(message, HasSubstr("LlamaForCausalLM, Llama4ForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
                                 "Olmo2ForCausalLM, Phi3ForCausalLM, Qwen2ForCausalLM, Qwen2MoeForCausalLM, "
                                 "Qwen3ForCausalLM, Qwen3MoeForCausalLM, SmolLM3ForCausalLM"));
}

TEST(ModelConfig, ModelTypeMustNotContradictTheArchitecture) {
  Json json = base();
  json.set("model_type", "qwen3");
  EXPECT_THAT(fault_of(json), HasSubstr("model_type 'qwen3' contradicts architectures [\"LlamaForCausalLM\"]"));
  json.set("architectures", Json::parse(R"(["Qwen3ForCausalLM"])"));
  EXPECT_EQ(parse_model_config(json, "a").model_type, "qwen3");
}

// A model that would compute something else than its config says is worse than none.
TEST(ModelConfig, FieldsThatNothingExecutesAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"num_experts", "8"},
      {"num_local_experts", "8"},
      {"sliding_window", "16"},
      {"qkv_bias", "true"},
      {"partial_rotary_factor", "0.5"},
      {"final_logit_softcapping", "30.0"},
      {"logit_softcapping", "30"},
      {"embedding_multiplier", "12"},
      {"alibi", "true"},
      {"qk_norm", "true"},
      {"use_mrope", "true"},
      {"is_encoder_decoder", "true"},
  };
  for (const auto& [key, value] : cases) {
    Json json = base();
    json.set(key, Json::parse(value));
    EXPECT_THAT(fault_of(json), HasSubstr(std::string(key) + ": " + value + " is not supported: "));
  }
  Json json = base();
  json.set("rope_parameters", Json::parse(R"({"rope_type": "default", "partial_rotary_factor": 0.25})"));
  EXPECT_THAT(fault_of(json), HasSubstr("rope_parameters: partial_rotary_factor: 0.25"));
  json.set("rope_parameters", Json::parse(R"({"full_attention": {"rope_type": "default"}})"));
  EXPECT_THAT(fault_of(json), HasSubstr("full_attention: this family has one setting for all layers"));
  json.erase("rope_parameters");
  json.set("model_type", "mixtral");
  json.set("architectures", Json::parse(R"(["MixtralForCausalLM"])"));
  json.set("router_jitter_noise", 0.1);
  EXPECT_THAT(fault_of(json), HasSubstr("noise on the inputs of experts while they are trained"));
}

TEST(ModelConfig, NeutralValuesAndUnknownKeysAreAccepted) {
  Json json = base();
  for (const auto& [key, value] : {std::pair{"num_experts", "0"},
                                   {"sliding_window", "null"},
                                   {"qkv_bias", "false"},
                                   {"partial_rotary_factor", "1.0"},
                                   {"embedding_multiplier", "1"},
                                   {"pretraining_tp", "1"},
                                   {"use_cache", "true"},
                                   {"pruned_heads", "{}"}})
    json.set(key, Json::parse(value));
  EXPECT_TRUE(parse_model_config(json, "a").unknown_fields.empty());
  json.set("some_vendor_key", 7);
  EXPECT_EQ(parse_model_config(json, "a").unknown_fields, std::vector<std::string>{"some_vendor_key"});
  // Families differ in what they execute.
  json.set("attention_bias", true);
  EXPECT_TRUE(parse_model_config(json, "a").output_bias);
  json.set("model_type", "qwen2");
  json.set("architectures", Json::parse(R"(["Qwen2ForCausalLM"])"));
  json.set("sliding_window", 4096);
  json.set("use_sliding_window", false);
  EXPECT_TRUE(parse_model_config(json, "a").qkv_bias);
  json.set("attention_bias", false);
  EXPECT_THAT(fault_of(json, ErrorCode::unsupported), HasSubstr("attention_bias is false"));
}

TEST(ModelConfig, ImpossibleValuesAreAllReported) {
  Json json = base();
  json.set("vocab_size", Json::parse("1099511627776"));
  json.set("hidden_size", 0);
  json.set("num_hidden_layers", -1);
  json.set("rope_theta", 0);
  json.set("hidden_act", "gelu");
  const std::string message = fault_of(json);
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "rope_theta", "hidden_act"})
    EXPECT_THAT(message, HasSubstr(key));
}

TEST(ModelConfig, GeometryIsChecked) {
  Json json = base();
  json.set("num_attention_heads", 7);
  EXPECT_THAT(fault_of(json), HasSubstr("64 is not a multiple of 7"));
  json = base();
  json.set("num_key_value_heads", 3);
  EXPECT_THAT(fault_of(json), HasSubstr("not a multiple of 3"));
  json = base();
  json.set("head_dim", 15);
  EXPECT_THAT(fault_of(json), HasSubstr("odd"));
  json = base();
  json.set("vocab_size", 16.5);
  EXPECT_THAT(fault_of(json), HasSubstr("expected an integer"));
}

TEST(ModelConfig, QuantizedCheckpointsAndOtherRopeTypesAreRefused) {
  Json json = base();
  json.set("quantization_config", Json::object());
  EXPECT_THAT(fault_of(json), HasSubstr("training of quantized checkpoints"));
  json = base();
  json.set("rope_scaling", Json::parse(R"({"rope_type": "proportional", "factor": 2.0})"));
  EXPECT_THAT(fault_of(json), HasSubstr("known: default, linear, dynamic, yarn, llama3, longrope"));
}

TEST(ModelConfig, MistralHasTheWindowOfItsConfigOrTransformersDefault) {
  Json json = base();
  json.set("architectures", Json::Array{"MistralForCausalLM"});
  json.set("model_type", "mistral");
  EXPECT_EQ(parse_model_config(json, "a").sliding_window, 4096);
  json.set("sliding_window", 7);
  const ModelConfig config = parse_model_config(json, "a");
  EXPECT_EQ(config.sliding_window, 7);
  EXPECT_EQ(to_hf_json(config, DType::f32).at("sliding_window").as_int(), 7);
  json.set("sliding_window", nullptr);
  const ModelConfig without = parse_model_config(json, "a");
  EXPECT_EQ(without.sliding_window, 0);
  EXPECT_TRUE(to_hf_json(without, DType::f32).at("sliding_window").is_null()) << "absent would be 4096 there";
  json.set("sliding_window", 0);
  EXPECT_THAT(fault_of(json), HasSubstr("sliding_window: expected a positive integer or null, got 0"));
}

// The window of 4 leaves 10 * 4 - (1 + 2 + 3) scores of 10 queries; counted as areas, 4 * (2 - 4/10) * 10 / 2.
TEST(ModelConfig, FlopsCountTheScoresWithinTheWindow) {
  ModelConfig config = parse_model_config(base(), "a");
  const auto of_window = [&](std::int64_t window) {
    for (BlockSpec& block : config.blocks) block.attention.window = window;
    return config.training_flops_per_token(10) - config.training_flops_per_token(0);
  };
  const double whole = of_window(0);
  EXPECT_NEAR(of_window(4), whole * 0.64, 1e-9 * whole);
  EXPECT_DOUBLE_EQ(of_window(10), whole);
}

TEST(ModelConfig, WrittenConfigReadsBackAndKeepsForeignMembers) {
  Json json = base();
  json.set("rope_theta", 500000.0);
  json.set("some_vendor_key", 7);
  json.set("eos_token_id", Json::parse("[1, 2]"));
  const ModelConfig c = parse_model_config(json, "a");
  const Json written = to_hf_json(c, DType::bf16);
  EXPECT_EQ(written.at("some_vendor_key").as_int(), 7);
  EXPECT_EQ(written.at("torch_dtype").as_string(), "bfloat16");
  const ModelConfig again = parse_model_config(written, "b");
  EXPECT_EQ(again.dtype, DType::bf16);
  EXPECT_EQ(again.rope.theta, 500000.0);
  EXPECT_EQ(again.eos_token_ids, c.eos_token_ids);
  EXPECT_EQ(again.parameter_count(), c.parameter_count());
}

TEST(ModelConfig, ParameterCountOfAPublishedModel) {
  // Llama-3.1-8B: 8,030,261,248 parameters.
  const ModelConfig c = parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 128256,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8})"),
                                           "a");
  EXPECT_EQ(c.parameter_count(), 8030261248);
}

}  // namespace
}  // namespace quench::nn
