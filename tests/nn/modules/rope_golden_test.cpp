// Rescaled rotary frequencies against Hugging Face Transformers (tests/reference/make_models.py).

#include <gtest/gtest.h>

#include "nn/modules/rope_table.h"
#include "tests/testing.h"

namespace quench::nn {
namespace {

TEST(RopeGolden, FrequenciesAndAttentionFactorsOfEveryType) {
  const Json reference = Json::parse_file(quench::testing::source_dir() / "tests/reference/rope.json");
  for (const Json& item : reference.at("cases").as_array()) {
    SCOPED_TRACE(item.at("rope_parameters").dump() + " at " + item.at("sequence_length").dump());
    Json json = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 32,
      "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1})");
    json.set("head_dim", reference.at("head_dim"));
    json.set("max_position_embeddings", reference.at("max_position_embeddings"));
    json.set("rope_parameters", item.at("rope_parameters"));
    const ModelConfig config = parse_model_config(json, "config.json");
    const auto& expected = item.at("inverse_frequencies").as_array();
    const auto compare = [&](const ModelConfig& c) {
      const std::vector<float> found =
          rope_inverse_frequencies(c.block(0).attention.rotary.value(), item.at("sequence_length").as_int());
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i].as_double(), 2e-6 * expected[i].as_double()) << i;
      EXPECT_NEAR(rope_attention_factor(c.rope), item.at("attention_factor").as_double(), 1e-12);
    };
    compare(config);
    compare(parse_model_config(to_hf_json(config, DType::f32), "exported"));
  }
}

}  // namespace
}  // namespace quench::nn
