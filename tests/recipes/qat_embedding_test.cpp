// Embeddings under quantization-aware training.

#include <gmock/gmock.h>

#include "core/ops/embedding.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"
#include "recipes/qat/fake_quantizer.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/qat_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::floats;
using ::testing::HasSubstr;
using testing::integers;

nn::ModelConfig config(bool tied) {
  return nn::parse_model_config(
      Json::parse(fmt::format(R"({{"model_type": "llama", "vocab_size": 48, "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": {}}})",
                              tied)),
      "config.json");
}

Tensor ids() {
  return Tensor::from_values<std::int32_t>({8}, std::vector<std::int32_t>{3, 1, 47, 3, 0, 9, 3, 20});
}

// Rows of the quantized table, and the gradient of those without what was clipped.
TEST(QatEmbedding, RowsMatchQuantizedTable) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t group : {0, 16}) {
      const nn::LinearInfo info{.name = "model.embed_tokens", .in_features = 64, .out_features = 48};
      const EmbeddingPlan plan =
          kQatInt8DynInt4.plan_embedding(info, {.embedding_bits = 3, .embedding_group_size = group});
      nn::Parameter table;
      table.variable = Variable::leaf(testing::random_matrix(48, 64, 1, 1.0f, dtype), DType::f32);
      const FakeQuantized whole = fake_quantize(table.variable.value(), integers(3, group), true);
      const Tensor expected = Tensor::empty({8, 64}, dtype), dy = testing::random_matrix(8, 64, 2, 1.0f, dtype);
      embedding({whole.values, ids(), expected});
      autograd::Tape tape;
      Variable out;
      {
        const autograd::TapeScope scope(tape);
        out = plan.kernel->apply(table, ids());
      }
      EXPECT_EQ(floats(out.value()), floats(expected));
      out.gradient()->contribute(dy);
      tape.backward();
      const Tensor gradient = Tensor::zeros({48, 64}, DType::f32);
      embedding_backward({.dout = dy, .ids = ids(), .dtable = gradient});
      const std::vector<float> dense = floats(gradient);
      stop_gradient(gradient, whole.mask);
      EXPECT_EQ(floats(table.variable.grad()), floats(gradient));
      EXPECT_NE(floats(gradient), dense) << "nothing was clipped";
    }
}

// Loss, logits and gradients of a model whose table is quantized beforehand; under a tied head too.
TEST(QatEmbedding, ModelMatchesModelWithQuantizedTable) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    std::vector<std::vector<float>> results[2];
    FakeQuantized table;
    for (const bool before : {true, false}) {
      nn::CausalLm model(config(tied), {});
      model.initialize(5);
      nn::Parameter& weight = *model.units()[0].parameters[0];
      table = fake_quantize(weight.variable.value(), integers(4, 32), true);
      if (before) Tensor(weight.variable.value()).copy_from(table.values);
      const auto rows = apply_recipe(model, kQatInt4WeightOnly, {{}, {"*"}},
                                     before ? RecipeOptions{} : RecipeOptions{.embedding_bits = 4});
      EXPECT_EQ(conversion_report(rows).find("int4 in groups of 32") == std::string::npos, before);
      const nn::ForwardContext context = model.make_context({{0, 8, 0, 8}}, 8);
      const Tensor labels = Tensor::from_values<std::int32_t>({8}, std::vector<std::int32_t>{1, 47, 3, 0, 9, 3, 20, 5});
      autograd::Tape tape;
      Variable loss;
      {
        const autograd::TapeScope scope(tape);
        loss = model.loss(ids(), labels, context, 1.0f / 8);
      }
      tape.backward(loss);
      Tensor gradient = weight.variable.grad();
      if (before) stop_gradient(gradient, table.mask);
      results[before] = {floats(loss.value()), floats(gradient), floats(model.logits(model.hidden(ids(), context)))};
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(QatEmbedding, OtherRecipeRemovesIt) {
  nn::CausalLm model(config(true), {});
  model.initialize(5);
  const auto logits = [&] { return floats(model.logits(model.hidden(ids(), model.make_context({{0, 8, 0, 8}}, 8)))); };
  const std::vector<float> plain = logits();
  (void)apply_recipe(model, kQatInt8, {{}, {"*"}}, {.embedding_bits = 2});
  EXPECT_NE(logits(), plain);
  (void)apply_recipe(model, kBf16, {});
  EXPECT_EQ(logits(), plain);
}

TEST(QatEmbedding, GroupsThatDoNotDivideAreRefusedByName) {
  nn::CausalLm model(config(true), {});
  const auto rows = apply_recipe(model, kQatInt8, {}, {.embedding_bits = 4, .embedding_group_size = 48});
  try {
    require_layers(kQatInt8, rows);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.embed_tokens, 64 inputs: recipe.embedding_group_size 48 does not "
                                        "divide its 64 inputs; 8, 16, 32, 64"));
  }
}

}  // namespace
}  // namespace quench::recipes
