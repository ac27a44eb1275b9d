// Layers that a scheme does not suit, and the scheme that does.

#include "export/table/unfit_scheme.h"

#include <gmock/gmock.h>

#include "tests/export/export_testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

class UnfitLayers : public ::testing::Test {
 protected:
  // q, k, v, o, gate and up have 64 inputs, down has 128.
  [[nodiscard]] std::optional<UnfitScheme> find(std::string_view scheme, std::string_view format,
                                                std::string_view reader = {},
                                                std::vector<std::string> exclude = {"lm_head"}) {
    const QuantizationRules rules{.scheme = find_scheme(scheme), .exclude = std::move(exclude)};
    return unfit_scheme(export_formats().require(format), model_tensors(model_, DType::bf16), rules,
                        reader.empty() ? nullptr : &folder_readers().require(reader));
  }

  nn::CausalLm model_{
      nn::parse_model_config(
          Json::parse(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
              "max_position_embeddings": 64, "eos_token_id": 2})"),
          "config.json"),
      {.dtype = DType::bf16, .trainable = false}};
};

TEST_F(UnfitLayers, AreCountedAndTheNearestSchemeForAllIsNamed) {
  const auto unfit = find("int4_weight_only_g128", "compressed-tensors");
  ASSERT_TRUE(unfit);
  // The head of the tied or untied model is a linear layer, too.
  EXPECT_EQ(unfit->layers, 12u);
  EXPECT_EQ(unfit->all, 15u);
  EXPECT_EQ(unfit->bytes, 2u * 2 * (4 * 64 * 64 + 2 * 64 * 128));
  ASSERT_NE(unfit->fits, nullptr);
  EXPECT_EQ(unfit->fits->name, "int4_weight_only_g64");
  EXPECT_EQ(to_text(*unfit),
            "scheme int4_weight_only_g128 suits 3 of 15 linear layers (groups of 128 do not divide its 64 inputs): 0.1 "
            "of 0.2 MB stay in high precision; int4_weight_only_g64 suits all");
  EXPECT_EQ(to_json(*unfit).at("suitable_scheme"), Json("int4_weight_only_g64"));
}

TEST_F(UnfitLayers, TheNamedSchemeIsOneThatTheReaderRuns) {
  const auto unfit = find("int8dyn_int8_g128", "compressed-tensors", "vllm");
  ASSERT_TRUE(unfit);
  ASSERT_NE(unfit->fits, nullptr);
  EXPECT_EQ(unfit->fits->name, "int8dyn_int8") << "vLLM has no groups of 8-bit weights with integer inputs";
  EXPECT_FALSE(find("q4_k", "gguf")) << "Q5_0 takes the place of Q4_K";
}

TEST_F(UnfitLayers, ThereAreNoneWhereTheShapesSuitOrTheLayersAreExcluded) {
  EXPECT_FALSE(find("int4_weight_only_g64", "compressed-tensors"));
  EXPECT_FALSE(find("int4_weight_only_g128", "compressed-tensors", {},
                    {"lm_head", "*.self_attn.*", "*.gate_proj", "*.up_proj"}));
}

}  // namespace
}  // namespace quench
