#include "recipes/tied_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/recipe_testing.h"

namespace quench::recipes {
namespace {

using testing::conversion_of;
using ::testing::FloatNear;
using testing::floats;
using ::testing::Pointwise;

nn::ModelConfig small_model(bool tied, std::int64_t vocabulary = 48) {
  return nn::parse_model_config(
      Json::parse(fmt::format(R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": {}}})",
                              vocabulary, tied)),
      "config.json");
}

nn::Parameter& parameter(nn::CausalLm& model, std::string_view name) {
  for (nn::Parameter* p : model.parameters())
    if (p->name == name) return *p;
  QUENCH_FAIL(ErrorCode::not_found, "{}", name);
}

// Loss, logits, and the gradients of the table and of the head, summed.
TEST(TiedHead, IsTheHeadOfAnUntiedModelWithTheSameWeights) {
  const Tensor ids = Tensor::from_values<std::int32_t>({8}, std::vector<std::int32_t>{3, 1, 47, 3, 0, 9, 3, 20});
  const Tensor labels = Tensor::from_values<std::int32_t>({8}, std::vector<std::int32_t>{1, 47, 3, 0, 9, 3, 20, 5});
  for (const std::string_view recipe : {"float8_tensorwise", "float8_rowwise", "int8_rowwise"}) {
    SCOPED_TRACE(recipe);
    std::vector<float> losses[2], logits[2], gradients[2];
    for (const bool tied : {false, true}) {
      nn::CausalLm model(small_model(tied), {});
      model.initialize(5);
      const nn::Parameter& table = parameter(model, "model.embed_tokens.weight");
      if (!tied) Tensor(parameter(model, "lm_head.weight").variable.value()).copy_from(table.variable.value());
      const auto rows = apply_recipe(model, find_recipe(recipe), {}, {.emulate = true});
      EXPECT_EQ(conversion_of(rows, "lm_head").kernel, conversion_of(rows, "model.layers.0.mlp.down_proj").kernel);
      EXPECT_EQ(conversion_of(rows, "lm_head").float8.size(), 3u);
      const nn::ForwardContext context = model.make_context({{0, 8, 0, 8}}, 8);
      autograd::Tape tape;
      nn::Variable loss;
      {
        const autograd::TapeScope scope(tape);
        loss = model.loss(ids, labels, context, 1.0f / 8);
      }
      tape.backward(loss);
      losses[tied] = floats(loss.value());
      logits[tied] = floats(model.logits(model.hidden(ids, context)));
      gradients[tied] = floats(table.variable.grad());
      if (tied) continue;
      const std::vector<float> head = floats(parameter(model, "lm_head.weight").variable.grad());
      for (std::size_t i = 0; i < head.size(); ++i) gradients[0][i] += head[i];
    }
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(logits[0], logits[1]);
    EXPECT_THAT(gradients[1], Pointwise(FloatNear(1e-6f), gradients[0]));
  }
}

TEST(TiedHead, TheFilterAndTheRecipeDecide) {
  const auto converted = [](std::string_view recipe, const LayerFilter& filter, std::int64_t vocabulary = 48) {
    nn::CausalLm model(small_model(true, vocabulary), {});
    const auto rows = apply_recipe(model, find_recipe(recipe), filter, {.emulate = true});
    const bool row = std::ranges::any_of(rows, [](const LayerConversion& layer) { return layer.name == "lm_head"; });
    EXPECT_EQ(model.head_gemms() != nullptr, row);
    return row;
  };
  EXPECT_TRUE(converted("float8_tensorwise", {}));
  EXPECT_TRUE(converted("float8_tensorwise", {{"lm_head"}, {}}));
  EXPECT_FALSE(converted("float8_tensorwise", {{}, {"lm_head"}}));
  EXPECT_FALSE(converted("float8_tensorwise", {{"*.mlp.*"}, {}}));
  EXPECT_FALSE(converted("float8_tensorwise", {}, 50)) << "rows are no multiple of 16";
  EXPECT_FALSE(converted("float8_blockwise", {}));
  EXPECT_FALSE(converted("bf16", {}));
  EXPECT_FALSE(converted("qat_int8", {}));
}

TEST(TiedHead, OtherRecipeRemovesIt) {
  nn::CausalLm model(small_model(true), {});
  (void)apply_recipe(model, find_recipe("float8_tensorwise"), {}, {.emulate = true});
  EXPECT_NE(model.head_gemms(), nullptr);
  (void)apply_recipe(model, find_recipe("bf16"), {});
  EXPECT_EQ(model.head_gemms(), nullptr);
}

}  // namespace
}  // namespace quench::recipes
