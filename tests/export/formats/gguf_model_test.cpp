// GGUF files that stand alone: what is written of a model comes back, and metadata that cannot be right are refused by
// file and key.

#include <fstream>
#include <set>

#include "core/system/file.h"
#include "export/formats/gguf/head_parser.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/model_config.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/rope.h"
#include "export/formats/gguf/writer.h"
#include "nn/decoder/causal_lm.h"
#include "nn/modules/rope_table.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDir;

nn::ModelConfig model_of_gguf(const std::string& architecture, const std::string& more) {
  const std::string text = R"({"architectures": [")" + architecture + R"("], "vocab_size": 16, "hidden_size": 64,
      "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
      "max_position_embeddings": 512, "tie_word_embeddings": false)" +
                           (more.empty() ? "" : ", " + more) + "}";
  return nn::parse_model_config(Json::parse(text), "config.json");
}

// The config of model.gguf in the folder, written for a model with random weights.
Json written_and_read(const nn::ModelConfig& config, const fs::path& folder) {
  nn::CausalLm model(config, {});
  model.initialize(1);
  const std::vector<ModelTensor> tensors = model_tensors(model, DType::f32);
  write_gguf({tensors, config, folder, 1 << 30});
  return gguf_model_config(folder / kGgufFileName);
}

const Json& metadata_of(const GgufHead& head, const std::string& key) {
  static const Json missing;
  const auto found = head.metadata.find(key);
  return found == head.metadata.end() ? missing : found->second;
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

constexpr const char* kLlama3 = R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64})";
constexpr const char* kYarn = R"("rope_scaling": {"rope_type": "yarn", "factor": 8.0,
    "original_max_position_embeddings": 64)";

TEST(GgufModel, RescalingOfPositionsComesBack) {
  const std::string yarn = kYarn;
  for (const std::string& scaling :
       {std::string(), std::string(R"("rope_theta": 500000.0)"), std::string(kLlama3),
        std::string(R"("rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 2.0,
            "high_freq_factor": 6.0, "original_max_position_embeddings": 256})"),
        std::string(R"("rope_scaling": {"rope_type": "linear", "factor": 4.0})"), yarn + "}",
        yarn + R"(, "attention_factor": 1.5})", yarn + R"(, "mscale": 1.0, "mscale_all_dim": 0.5})",
        yarn + R"(, "beta_fast": 8.0, "beta_slow": 2.0})", yarn + R"(, "truncate": false, "attention_factor": 0.9})"}) {
    const TempDir folder;
    const nn::ModelConfig config = model_of_gguf("LlamaForCausalLM", scaling);
    const nn::ModelConfig read = nn::parse_model_config(written_and_read(config, folder.path()), "model.gguf");
    const std::vector<float> expected = nn::rope_inverse_frequencies(config.block(0).attention.rotary.value()),
                             values = nn::rope_inverse_frequencies(read.block(0).attention.rotary.value());
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(values[i], expected[i], 1e-6f * expected[i]) << scaling << " frequency " << i;
    EXPECT_NEAR(nn::rope_attention_factor(read.rope), nn::rope_attention_factor(config.rope), 1e-6) << scaling;
    EXPECT_EQ(read.rope.type, config.rope.type) << scaling;
  }
}

// What llama.cpp computes from the keys: by its own formulas (export/formats/gguf/rope.h).
TEST(GgufModel, KeysSayWhatLlamaCppComputes) {
  const TempDir plain, other, llama3;
  (void)written_and_read(model_of_gguf("LlamaForCausalLM", std::string(kYarn) + R"(, "attention_factor": 1.5})"),
                         plain.path());
  const GgufHead yarn = read_gguf_head(plain / "model.gguf");
  EXPECT_EQ(metadata_of(yarn, "llama.rope.scaling.type"), Json("yarn"));
  EXPECT_EQ(metadata_of(yarn, "llama.rope.scaling.factor"), Json(8.0));
  EXPECT_EQ(metadata_of(yarn, "llama.rope.scaling.original_context_length"), Json(64));
  EXPECT_NEAR(metadata_of(yarn, "llama.rope.scaling.attn_factor").as_double() * (0.1 * std::log(8.0) + 1), 1.5, 1e-6);

  const nn::ModelConfig config =
      model_of_gguf("LlamaForCausalLM", std::string(kYarn) + R"(, "beta_fast": 8.0, "beta_slow": 2.0})");
  (void)written_and_read(config, other.path());
  const GgufHead divided = read_gguf_head(other / "model.gguf");
  EXPECT_EQ(metadata_of(divided, "llama.rope.scaling.type"), Json("none"));
  EXPECT_NEAR(metadata_of(divided, "llama.rope.scaling.attn_factor").as_double(), 0.1 * std::log(8.0) + 1, 1e-6);
  const GgufRope rope = gguf_rope(config);
  const std::vector<float> expected = nn::rope_inverse_frequencies(config.block(0).attention.rotary.value());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(std::pow(1e4, -2.0 * static_cast<double>(i) / 32) / rope.divisors.all[i], expected[i],
                1e-6 * expected[i]);

  (void)written_and_read(model_of_gguf("LlamaForCausalLM", kLlama3), llama3.path());
  EXPECT_TRUE(metadata_of(read_gguf_head(llama3 / "model.gguf"), "llama.rope.scaling.type").is_null());
}

TEST(GgufModel, BiasesComeBack) {
  const TempDir llama, qwen;
  const Json biased =
      written_and_read(model_of_gguf("LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true)"), llama.path());
  EXPECT_EQ(biased.at("attention_bias"), Json(true));
  EXPECT_EQ(biased.at("mlp_bias"), Json(true));
  EXPECT_TRUE(
      nn::parse_model_config(written_and_read(model_of_gguf("Qwen2ForCausalLM", ""), qwen.path()), "qwen").qkv_bias);
}

TEST(GgufModel, WhatLlamaCppCannotComputeIsRefused) {
  const auto refused = [](const std::string& architecture, const std::string& more) {
    return refusal_of([&] { require_gguf_model(model_of_gguf(architecture, more)); });
  };
  EXPECT_THAT(refused("Qwen2ForCausalLM", kLlama3), HasSubstr("architecture qwen2 does not support this RoPE scaling"));
  EXPECT_THAT(refused("Qwen3ForCausalLM", std::string(kYarn) + R"(, "beta_slow": 2.0})"), HasSubstr("beta_fast 32"));
  EXPECT_THAT(refused("Qwen2ForCausalLM", R"("head_dim": 16)"), HasSubstr("hidden_size 64, here 2 of 16"));
  EXPECT_THAT(refused("Qwen3ForCausalLM", R"("head_dim": 16, "attention_bias": true)"), HasSubstr("attention_bias"));
  EXPECT_NO_THROW(require_gguf_model(model_of_gguf("Qwen2ForCausalLM", std::string(kYarn) + "}")));
  EXPECT_NO_THROW(require_gguf_model(model_of_gguf("Qwen3ForCausalLM", R"("head_dim": 16)")));
}

TEST(GgufModel, FactorsAndNormsOfOtherFamiliesComeBack) {
  const TempDir granite, olmo, smol;
  const nn::ModelConfig factors =
      nn::parse_model_config(written_and_read(model_of_gguf("GraniteForCausalLM",
                                                            R"("embedding_multiplier": 12, "residual_multiplier": 0.22,
          "attention_multiplier": 0.0078125, "logits_scaling": 6, "attention_bias": true)"),
                                              granite.path()),
                             "granite");
  EXPECT_EQ(factors.stream.embedding_scale, 12.0);
  EXPECT_EQ(factors.block(0).residual_multiplier, 0.22);
  EXPECT_EQ(factors.block(0).attention.scale, 0.0078125);
  EXPECT_DOUBLE_EQ(factors.stream.logits_scale, 1.0 / 6);
  EXPECT_TRUE(factors.qkv_bias);
  const GgufHead head = read_gguf_head(granite / "model.gguf");
  EXPECT_EQ(metadata_of(head, "granite.logit_scale"), Json(6.0));
  EXPECT_EQ(metadata_of(head, "granite.attention.scale"), Json(0.0078125));

  EXPECT_EQ(nn::parse_model_config(written_and_read(model_of_gguf("Olmo2ForCausalLM", ""), olmo.path()), "olmo2")
                .architecture,
            "Olmo2ForCausalLM");
  std::set<std::string> names;
  for (const GgufEntry& entry : read_gguf_head(olmo / "model.gguf").tensors) names.insert(entry.name);
  EXPECT_EQ(names,
            (std::set<std::string>{"token_embd.weight", "output_norm.weight", "output.weight", "blk.0.attn_q.weight",
                                   "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
                                   "blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
                                   "blk.0.post_attention_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
                                   "blk.0.ffn_down.weight", "blk.0.post_ffw_norm.weight"}));

  const nn::ModelConfig skips = nn::parse_model_config(
      written_and_read(model_of_gguf("SmolLM3ForCausalLM", R"("no_rope_layers": [1])"), smol.path()), "smollm3");
  EXPECT_TRUE(skips.block(0).attention.rotary.has_value());
}

TEST(GgufModel, PartialRotationAndFusedProjectionsComeBack) {
  const TempDir glm, phi;
  const nn::ModelConfig glm4 = nn::parse_model_config(
      written_and_read(model_of_gguf("Glm4ForCausalLM", R"("head_dim": 16, "partial_rotary_factor": 0.25)"),
                       glm.path()),
      "glm4");
  EXPECT_EQ(glm4.block(0).attention.rotary->dim, 4);
  EXPECT_TRUE(glm4.qkv_bias);
  std::set<std::string> names;
  for (const GgufEntry& entry : read_gguf_head(glm / "model.gguf").tensors) names.insert(entry.name);
  for (const char* name :
       {"attn_q.bias", "post_attention_norm.weight", "ffn_norm.weight", "ffn_up.weight", "post_ffw_norm.weight"})
    EXPECT_TRUE(names.contains(std::string("blk.0.") + name)) << name;
  EXPECT_FALSE(names.contains("blk.0.ffn_gate.weight"));

  const nn::ModelConfig written = model_of_gguf("Phi3ForCausalLM", R"("partial_rotary_factor": 0.25,
      "original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope", "short_factor": [1, 1.25, 1.5, 2],
      "long_factor": [1, 2, 4, 8]})");
  const nn::ModelConfig read = nn::parse_model_config(written_and_read(written, phi.path()), "phi3");
  EXPECT_EQ(read.block(0).attention.rotary->dim, 8);
  EXPECT_EQ(read.rope.original_max_position_embeddings, 64);
  EXPECT_EQ(read.rope.short_factors, written.rope.short_factors);
  EXPECT_EQ(read.rope.long_factors, written.rope.long_factors);
  EXPECT_NEAR(nn::rope_attention_factor(read.rope), nn::rope_attention_factor(written.rope), 1e-6);
  const GgufHead head = read_gguf_head(phi / "model.gguf");
  EXPECT_EQ(metadata_of(head, "phi3.rope.dimension_count"), Json(8));
  EXPECT_EQ(metadata_of(head, "phi3.attention.sliding_window"), Json(0));
  names.clear();
  for (const GgufEntry& entry : head.tensors) names.insert(entry.name);
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight", "blk.0.attn_qkv.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(GgufModel, OtherFamiliesAreRefusedWhereLlamaCppDiffers) {
  const auto refused = [](const std::string& architecture, const std::string& more) {
    return refusal_of([&] { require_gguf_model(model_of_gguf(architecture, more)); });
  };
  nn::ModelConfig tied = model_of_gguf("Olmo2ForCausalLM", "");
  tied.tie_word_embeddings = true;
  EXPECT_THAT(refusal_of([&] { require_gguf_model(tied); }), HasSubstr("a head of its own"));
  EXPECT_THAT(refused("Olmo2ForCausalLM", R"("attention_bias": true)"), HasSubstr("no biases in this architecture"));
  EXPECT_THAT(refused("Olmo2ForCausalLM", R"("head_dim": 16)"), HasSubstr("hidden_size 64, here 2 of 16"));
  EXPECT_THAT(refused("SmolLM3ForCausalLM", R"("no_rope_layers": [0])"),
              HasSubstr("llama.cpp has no RoPE in every layer number 4"));
  EXPECT_THAT(refused("SmolLM3ForCausalLM", R"("mlp_bias": true)"), HasSubstr("no biases in this architecture"));
  EXPECT_THAT(refused("SmolLM3ForCausalLM", kLlama3), HasSubstr("does not support this RoPE scaling"));
  EXPECT_NO_THROW(require_gguf_model(model_of_gguf("GraniteForCausalLM", kLlama3)));
  constexpr const char* kLongrope = R"("rope_scaling": {"rope_type": "longrope", "factor": 4.0,
      "original_max_position_embeddings": 64, "short_factor": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
      "long_factor": [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]})";
  EXPECT_THAT(refused("Qwen2ForCausalLM", kLongrope), HasSubstr("does not support RoPE scaling longrope"));
  for (const char* architecture : {"LlamaForCausalLM", "MistralForCausalLM", "GraniteForCausalLM"}) {
    const testing::TempDir temp;
    const nn::ModelConfig written = model_of_gguf(architecture, kLongrope);
    const nn::ModelConfig read = nn::parse_model_config(written_and_read(written, temp.path()), architecture);
    EXPECT_EQ(read.rope.type, nn::RopeScaling::Type::longrope) << architecture;
    EXPECT_EQ(read.rope.original_max_position_embeddings, 64) << architecture;
    EXPECT_EQ(read.rope.long_factors, written.rope.long_factors) << architecture;
    EXPECT_NEAR(nn::rope_attention_factor(read.rope), nn::rope_attention_factor(written.rope), 1e-6) << architecture;
  }
  EXPECT_THAT(refused("Phi3ForCausalLM", R"("sliding_window": 9)"), HasSubstr("sliding window of 9 tokens"));
}

class GgufMetadata : public ::testing::Test {
 protected:
  // What is said of a file with a value in place of one, or next to the others.
  std::string refused(const std::string& key, std::optional<GgufValue> value, std::uint32_t type = 0) {
    std::vector<std::pair<std::string, GgufValue>> metadata = {
        {"general.architecture", std::string("llama")},
        {"llama.context_length", std::uint32_t{64}},
        {"llama.embedding_length", std::uint32_t{8}},
        {"llama.block_count", std::uint32_t{1}},
        {"llama.feed_forward_length", std::uint32_t{8}},
        {"llama.attention.head_count", std::uint32_t{2}},
        {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
        {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "c"}},
    };
    std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
    if (value) metadata.emplace_back(key, *value);
    metadata.insert(metadata.end(), more_.begin(), more_.end());
    const std::vector<GgufTensor> tensors = {
        {.name = "token_embd.weight", .dimensions = {8, 3}, .type = type, .bytes = 96},
        {.name = "rope_freqs.weight", .dimensions = {2}, .bytes = 8}};
    std::string text = gguf_head(metadata, tensors) + std::string(96, '\0');
    for (const float divisor : divisors_) text.append(reinterpret_cast<const char*>(&divisor), sizeof divisor);
    write_file_atomically(folder_ / "m.gguf", text + std::string(24, '\0'));
    return refusal_of([&] { config_ = gguf_model_config(folder_ / "m.gguf"); });
  }

  TempDir folder_;
  Json config_;
  std::vector<std::pair<std::string, GgufValue>> more_;
  std::array<float, 2> divisors_ = {1, 1};
};

// eos, the end of a turn and of a message: each ends a text.
TEST_F(GgufMetadata, AllIdsThatEndATextAreRead) {
  EXPECT_EQ(refused("tokenizer.ggml.eot_token_id", std::uint32_t{2}), "nothing was refused");
  EXPECT_EQ(config_.find("eos_token_id")->as_int(), 2);
  more_ = {{"tokenizer.ggml.eos_token_id", std::uint32_t{1}}, {"tokenizer.ggml.eom_token_id", std::uint32_t{0}}};
  EXPECT_EQ(refused("tokenizer.ggml.eot_token_id", std::uint32_t{2}), "nothing was refused");
  EXPECT_EQ(config_.at("eos_token_id"), Json(Json::Array{1, 2, 0}));
  EXPECT_THAT(refused("tokenizer.ggml.eot_token_id", std::uint32_t{3}), HasSubstr("eot_token_id is 3, outside"));
}

// An item takes many times its byte in memory.
TEST(GgufHeadParser, ArraysMustNotFillTheMemory) {
  constexpr std::size_t kCountAt = 4 + 4 + 8 + 8 + (8 + 1) + 4 + 4;  // after the head's numbers, the key, two types
  constexpr std::uint64_t kMost = std::uint64_t{1} << 22;
  std::string head = gguf_head({{"a", std::vector<std::int32_t>(1)}}, {});
  for (const std::uint64_t count : {kMost, kMost + 1}) {
    std::memcpy(head.data() + kCountAt, &count, sizeof count);
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(head.data()), head.size());
    const std::string said = refusal_of([&] { (void)parse_gguf_head(bytes, std::uint64_t{1} << 40, "f.gguf"); });
    EXPECT_THAT(said, HasSubstr(count == kMost ? "nothing was refused" : "an array of 4194305 items"));
  }
}

TEST_F(GgufMetadata, FaultsAreNamedByFileAndKey) {
  struct Fault {
    std::string key;
    std::optional<GgufValue> value;
    std::string message;
  };
  EXPECT_EQ(refused("general.name", std::string("x")), "nothing was refused");
  EXPECT_EQ(refused("llama.attention.head_count_kv", std::vector<std::int32_t>{2, 2}), "nothing was refused");
  for (const Fault& fault : {
           Fault{"llama.embedding_length", 8.5f, "llama.embedding_length is 8.5, expected an integer"},
           Fault{"llama.embedding_length", std::string("8"), "llama.embedding_length is \"8\", expected an integer"},
           Fault{"llama.block_count", std::int32_t{-1}, "llama.block_count is -1, expected an integer"},
           Fault{"llama.block_count", std::uint32_t{0xFFFFFFFF}, "llama.block_count is 4294967295"},
           Fault{"llama.feed_forward_length", std::nullopt, "it has no llama.feed_forward_length"},
           Fault{"llama.attention.head_count_kv", std::vector<std::int32_t>{1, 2},
                 "llama.attention.head_count_kv differs from layer to layer"},
           Fault{"llama.attention.head_count", std::uint32_t{0}, "head_count is 0, expected a positive integer"},
           Fault{"llama.attention.layer_norm_rms_epsilon", NAN,
                 "layer_norm_rms_epsilon is not finite, expected a number"},
           Fault{"llama.attention.layer_norm_rms_epsilon", -1.0f, "expected a positive number"},
           Fault{"llama.vocab_size", std::uint32_t{4}, "llama.vocab_size is 4, but token_embd.weight has 3 rows"},
           Fault{"tokenizer.ggml.tokens", std::vector<std::string>{"a"}, "tokenizer.ggml.tokens has 1 tokens"},
           Fault{"tokenizer.ggml.tokens", std::uint32_t{3}, "tokenizer.ggml.tokens is no list"},
           Fault{"tokenizer.ggml.eos_token_id", std::uint32_t{3}, "tokenizer.ggml.eos_token_id is 3, outside"},
           Fault{"llama.rope.dimension_count", std::uint32_t{2}, "llama.rope.dimension_count is 2, but heads have 4"},
           Fault{"llama.attention.value_length", std::uint32_t{2}, "llama.attention.value_length is 2"},
           Fault{"llama.attention.sliding_window", std::uint32_t{4}, "llama.attention.sliding_window is 4"},
           Fault{"split.count", std::uint32_t{3},
                 "it is part 1 of 3 of a model (split.no, split.count), whose files end"},
           Fault{"llama.expert_count", std::uint32_t{8}, "it has no llama.expert_used_count"},
           Fault{"llama.attention.scale", 0.5f, "llama.attention.scale is not supported"},
           Fault{"llama.rope.scaling.type", std::string("longrope"),
                 "longrope needs both rope_factors_short.weight and rope_factors_long.weight"},
           Fault{"llama.rope.scaling.alpha", 1000.0f, "llama.rope.scaling.alpha is not supported"},
           Fault{"llama.rope.freq_base", std::string("x"), "llama.rope.freq_base is \"x\", expected a number"},
           Fault{"general.architecture", std::string("gemma"),
                 "'gemma' is not supported; known: deepseek2, gemma2, gemma3, glm4, gpt-oss, granite, llama, llama4, "
                 "olmo2"},
           Fault{"general.architecture", std::string("gpt-oss"), "'gpt-oss' without experts is not supported"},
           Fault{"general.architecture", std::uint32_t{1}, "general.architecture is 1, expected a string"},
       }) {
    const std::string message = refused(fault.key, fault.value);
    EXPECT_THAT(message, HasSubstr(fault.message));
    EXPECT_THAT(message, HasSubstr("m.gguf"));
  }
  EXPECT_THAT(refused("general.name", std::string("x"), 24), HasSubstr("tensor token_embd.weight has type I8; known:"));
  divisors_ = {1, 7};
  EXPECT_THAT(refused("general.name", std::string("x")), HasSubstr("rope_freqs.weight fits no known RoPE scaling"));
  divisors_ = {1, -1};
  EXPECT_THAT(refused("general.name", std::string("x")), HasSubstr("rope_freqs.weight holds -1"));
}

}  // namespace
}  // namespace quench
