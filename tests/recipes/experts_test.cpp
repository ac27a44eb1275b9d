// Expert GEMMs under low-precision recipes: scales stand where the recipe says, exactly; the walk converts
// experts like other layers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/swiglu.h"
#include "core/number/random.h"
#include "nn/decoder/causal_lm.h"
#include "nn/experts/expert_linear.h"
#include "recipes/convert.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/recipe_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::conversion_of;
using testing::Generator;
using ::testing::HasSubstr;

constexpr std::int64_t kExperts = 3, kRows = 192, kIn = 64, kOut = 96;

autograd::TokenPermutation rows_of() {
  autograd::TokenPermutation rows;
  rows.choices = 1;
  // Uneven, one group empty, 32 rows after the last.
  rows.ends = Tensor::from_values<std::int32_t>({kExperts}, std::vector<std::int32_t>{64, 64, 160});
  return rows;
}

struct ExpertResult {
  Tensor y, dx, dw;
};

ExpertResult run(const Recipe& recipe, const Tensor& x, const Tensor& w, const Tensor& dy,
                 const RecipeOptions& options = {}) {
  const ExpertPlan plan = recipe.plan_experts({.name = "experts", .in_features = kIn, .out_features = kOut}, options);
  const Variable in = Variable::leaf(x);
  nn::Parameter weight;
  weight.variable = Variable::leaf(w);
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = plan.kernel->apply(in, weight, rows_of());
  }
  const Tensor value = y.value();
  y.gradient()->contribute(dy);
  tape.backward();
  return {value, in.grad(), weight.variable.grad()};
}

// Random powers of two between 2^-20 and 2^20.
std::vector<float> powers(Generator& random, std::int64_t n) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < n; ++i) result.push_back(std::ldexp(1.0f, static_cast<int>(random.between(-20, 20))));
  return result;
}

// t[r][c] * of_row[r] * of_column[c]; an empty list is all ones.
Tensor rescaled(const Tensor& t, const std::vector<float>& of_row, const std::vector<float>& of_column) {
  Tensor result = t.clone();
  for (std::int64_t r = 0; r < t.size(0); ++r)
    for (std::int64_t c = 0; c < t.size(1); ++c)
      result.data<float>()[r * t.size(1) + c] *= (of_row.empty() ? 1.0f : of_row[static_cast<std::size_t>(r)]) *
                                                 (of_column.empty() ? 1.0f : of_column[static_cast<std::size_t>(c)]);
  return result;
}

// One factor for each row of every expert's part, from factors of the rows of one.
std::vector<float> repeated(const std::vector<float>& of_one) {
  std::vector<float> result;
  for (std::int64_t e = 0; e < kExperts; ++e) result.insert(result.end(), of_one.begin(), of_one.end());
  return result;
}

class ExpertRecipe : public ::testing::TestWithParam<const Recipe*> {
 protected:
  Generator random{23};
  const Tensor x = random.normal({kRows, kIn}, DType::f32), w = random.normal({kExperts * kOut, kIn}, DType::f32),
               dy = random.normal({kRows, kOut}, DType::f32);
  [[nodiscard]] const Recipe& recipe() const { return *GetParam(); }
};

// Numerics 12.2 (a): an index that a product keeps has a scale of its own.
TEST_P(ExpertRecipe, ScalesOfKeptIndicesPassThrough) {
  const ExpertResult plain = run(recipe(), x, w, dy);
  const auto rows = powers(random, kRows), outs = powers(random, kOut), ins = powers(random, kIn);
  // Every expert has its own.
  const auto outputs = powers(random, kExperts * kOut);
  const ExpertResult forward = run(recipe(), rescaled(x, rows, {}), rescaled(w, outputs, {}), dy);
  for (std::int64_t r = 0; r < kRows; ++r) {
    const std::int64_t expert = r < 64 ? 0 : 2;
    for (std::int64_t n = 0; n < kOut; ++n)
      ASSERT_EQ(forward.y.data<float>()[r * kOut + n], plain.y.data<float>()[r * kOut + n] *
                                                           rows[static_cast<std::size_t>(r)] *
                                                           outputs[static_cast<std::size_t>(expert * kOut + n)]);
  }
  const ExpertResult dgrad = run(recipe(), x, rescaled(w, {}, ins), rescaled(dy, rows, {}));
  EXPECT_TRUE(testing::same_bits(dgrad.dx, rescaled(plain.dx, rows, ins)));
  const ExpertResult wgrad = run(recipe(), rescaled(x, {}, ins), w, rescaled(dy, {}, outs));
  EXPECT_TRUE(testing::same_bits(wgrad.dw, rescaled(plain.dw, repeated(outs), ins)));
}

// Numerics 12.2 (b): every 32 elements along the contraction have a scale of their own.
TEST(MxExperts, ScalesOfBlocksCancel) {
  Generator random(29);
  const Tensor x = random.normal({kRows, kIn}, DType::f32), w = random.normal({kExperts * kOut, kIn}, DType::f32),
               dy = random.normal({kRows, kOut}, DType::f32);
  const ExpertResult plain = run(kMxfp8, x, w, dy);
  const auto of_blocks = [&](std::int64_t n, bool inverse) {
    Generator same(31);
    std::vector<float> result;
    for (std::int64_t b = 0; b < n / 32; ++b) {
      const float power = std::ldexp(1.0f, static_cast<int>(same.between(-12, 12)));
      result.insert(result.end(), 32, inverse ? 1 / power : power);
    }
    return result;
  };
  EXPECT_TRUE(testing::same_bits(
      run(kMxfp8, rescaled(x, {}, of_blocks(kIn, false)), rescaled(w, {}, of_blocks(kIn, true)), dy).y, plain.y));
  EXPECT_TRUE(testing::same_bits(
      run(kMxfp8, x, rescaled(w, repeated(of_blocks(kOut, true)), {}), rescaled(dy, {}, of_blocks(kOut, false))).dx,
      plain.dx));
  EXPECT_TRUE(testing::same_bits(
      run(kMxfp8, rescaled(x, of_blocks(kRows, false), {}), w, rescaled(dy, of_blocks(kRows, true), {})).dw, plain.dw));
}

TEST_P(ExpertRecipe, ProductsCanStayInHighPrecision) {
  RecipeOptions options;
  const ExpertResult rounded = run(recipe(), x, w, dy),
                     exact = run(recipe(), x, w, dy, {.high_precision = {LinearGemm::wgrad}});
  EXPECT_TRUE(testing::same_bits(rounded.y, exact.y));
  EXPECT_TRUE(testing::same_bits(rounded.dx, exact.dx));
  EXPECT_FALSE(testing::same_bits(rounded.dw, exact.dw));
  options.high_precision = {LinearGemm::forward, LinearGemm::dgrad, LinearGemm::wgrad};
  const ExpertPlan plan = recipe().plan_experts({.name = "experts"}, options);
  EXPECT_EQ(plan.kernel, nullptr);
  EXPECT_THAT(plan.skipped_because, HasSubstr("recipe.high_precision_gemms"));
}

// What a layer makes of tokens, or as sums over their rows, is what it makes of copies and of rows that others sum.
TEST_P(ExpertRecipe, CopiesAndSumsOfOthersChangeNothing) {
  constexpr std::int64_t kTokens = 50;
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < 2 * kTokens; ++i) chosen.push_back(static_cast<std::int32_t>(i * i % kExperts));
  const autograd::TokenPermutation rows =
      autograd::sort_tokens(Tensor::from_values<std::int32_t>({kTokens, 2}, chosen), kExperts, 32);
  const std::int64_t count = rows.pairs.size(0);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::vector<LinearGemm>& high_precision :
         {std::vector<LinearGemm>{}, {LinearGemm::wgrad}, {LinearGemm::dgrad}, {LinearGemm::forward}}) {
      SCOPED_TRACE(fmt::format("{}, {} in high precision", to_string(dtype), high_precision.size()));
      const ExpertPlan plan = recipe().plan_experts({.name = "experts", .in_features = kIn, .out_features = kOut},
                                                    {.high_precision = high_precision});
      const Tensor of_tokens = random.normal({kTokens, kIn}, dtype), of_rows = random.normal({count, kIn}, dtype),
                   weights = random.normal({kExperts * kOut, kIn}, dtype);
      const Tensor by_token = random.normal({kTokens, kOut}, dtype), by_row = random.normal({count, kOut}, dtype);
      const auto pass = [&](const Tensor& value, const Tensor& gradient, const auto& apply) {
        const Variable in = Variable::leaf(value);
        nn::Parameter weight;
        weight.variable = Variable::leaf(weights);
        autograd::Tape tape;
        Variable y;
        {
          const autograd::TapeScope scope(tape);
          y = apply(in, weight);
        }
        const Tensor made = y.value();
        // No other variable holds the gradient, as in a model.
        y.gradient()->contribute(gradient.clone());
        tape.backward();
        return ExpertResult{made, in.grad(), weight.variable.grad()};
      };
      const auto expect_same = [](const ExpertResult& a, const ExpertResult& b) {
        EXPECT_TRUE(testing::same_bits(a.y, b.y));
        EXPECT_TRUE(testing::same_bits(a.dx, b.dx));
        EXPECT_TRUE(testing::same_bits(a.dw, b.dw));
      };
      const nn::ExpertKernel& kernel = *plan.kernel;
      expect_same(pass(of_tokens, by_row,
                       [&](const Variable& input, const nn::Parameter& layer) {
                         return kernel.apply_to_tokens(input, layer, rows);
                       }),
                  pass(of_tokens, by_row, [&](const Variable& input, const nn::Parameter& layer) {
                    return kernel.apply(autograd::permute_tokens(input, rows), layer, rows);
                  }));
      expect_same(pass(of_rows, by_token,
                       [&](const Variable& input, const nn::Parameter& layer) {
                         return kernel.apply_and_sum(input, layer, rows);
                       }),
                  pass(of_rows, by_token, [&](const Variable& input, const nn::Parameter& layer) {
                    return autograd::unpermute_tokens(kernel.apply(input, layer, rows), rows);
                  }));
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, ExpertRecipe, ::testing::Values(&kFloat8Rowwise, &kMxfp8),
                         [](const auto& recipe) { return std::string(recipe.param->name); });

// SwiGLU writes the operand of the product after it; the weight's gradient reads the values, which are recomputed.
TEST(MxExperts, SwigluRoundsForTheProductBehindIt) {
  constexpr std::int64_t kTokens = 50, kWidth = 64;
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < 2 * kTokens; ++i) chosen.push_back(static_cast<std::int32_t>(i * i % kExperts));
  const autograd::TokenPermutation rows =
      autograd::sort_tokens(Tensor::from_values<std::int32_t>({kTokens, 2}, chosen), kExperts, 32);
  for (const autograd::Recompute level : {autograd::Recompute::none, autograd::Recompute::selective})
    for (const bool trains_gate_up : {true, false})
      for (const std::vector<LinearGemm>& high_precision : {std::vector<LinearGemm>{}, {LinearGemm::wgrad}}) {
        const ExpertPlan plan = kMxfp8.plan_experts({.name = "down", .in_features = kWidth, .out_features = kOut},
                                                    {.high_precision = high_precision});
        std::vector<ExpertResult> results;
        for (const bool asks : {true, false}) {
          Generator random(43);
          const Tensor values = random.normal({rows.pairs.size(0), 2 * kWidth}, DType::bf16);
          const Variable gate_up = trains_gate_up ? Variable::leaf(values) : Variable(values);
          const Variable weights(random.normal({kTokens, 2}, DType::f32));
          nn::Parameter down;
          down.variable = Variable::leaf(random.normal({kExperts * kOut, kWidth}, DType::bf16));
          autograd::Tape tape(level);
          Variable y;
          {
            const autograd::TapeScope scope(tape);
            const Variable inner =
                autograd::expert_swiglu(gate_up, weights, rows, false,
                                        asks ? plan.kernel->input_quant_request() : autograd::QuantOutputRequest{});
            EXPECT_EQ(inner.fused().form() == autograd::ValueForm::substituted, asks && trains_gate_up)
                << "a value without recompute is not substituted";
            y = plan.kernel->apply_and_sum(inner, down, rows);
          }
          const Tensor made = y.value();
          y.gradient()->contribute(random.normal({kTokens, kOut}, DType::bf16));
          tape.backward();
          results.push_back({made, gate_up.grad(), down.variable.grad()});
        }
        EXPECT_TRUE(testing::same_bits(results[0].y, results[1].y));
        if (trains_gate_up) {
          EXPECT_TRUE(testing::same_bits(results[0].dx, results[1].dx));
        }
        EXPECT_TRUE(testing::same_bits(results[0].dw, results[1].dw));
      }
}

std::vector<const Recipe*> weight_recipes() {
  std::vector<const Recipe*> recipes;
  for (const Recipe& recipe : recipe_table())
    if (recipe.capabilities.required == RequiredLayers::all && recipe.plan_experts != nullptr)
      recipes.push_back(&recipe);
  return recipes;
}

class FakeQuantizedExperts : public ::testing::TestWithParam<const Recipe*> {
 protected:
  [[nodiscard]] const Recipe& recipe() const { return *GetParam(); }
};

// Every expert computes what a linear layer under the same recipe makes of its rows and its weight.
TEST_P(FakeQuantizedExperts, AreLinearLayers) {
  Generator random(37);
  const Tensor x = random.normal({kRows, kIn}, DType::f32), w = random.normal({kExperts * kOut, kIn}, DType::f32),
               dy = random.normal({kRows, kOut}, DType::f32);
  // Where a whole input has one scale, experts have it in common.
  for (const std::int64_t first : {0, 64}) x.data<float>()[first * kIn] = 16.0f;
  for (const bool keep : {false, true}) {
    const RecipeOptions options{.keep_weights = keep};
    const ExpertResult all = run(recipe(), x, w, dy, options);
    const std::pair<std::int64_t, std::int64_t> groups[] = {{0, 64}, {64, 0}, {64, 96}};
    for (std::int64_t e = 0; e < kExperts; ++e) {
      SCOPED_TRACE(fmt::format("expert {}, weights kept: {}", e, keep));
      const auto [begin, count] = groups[e];
      const Tensor of_expert = all.dw.narrow(0, e * kOut, kOut);
      if (count == 0) {
        EXPECT_TRUE(testing::same_bits(of_expert, Tensor::zeros(of_expert.shape(), DType::f32)));
        continue;
      }
      const LinearPlan plan = recipe().plan({.name = "layer", .in_features = kIn, .out_features = kOut}, options);
      const Variable in = Variable::leaf(x.narrow(0, begin, count).clone());
      nn::Parameter weight;
      weight.variable = Variable::leaf(w.narrow(0, e * kOut, kOut).clone());
      autograd::Tape tape;
      Variable y;
      {
        const autograd::TapeScope scope(tape);
        y = plan.kernel->apply(in, weight, {});
      }
      EXPECT_LT(testing::distance(all.y.narrow(0, begin, count), y.value()), 1e-6);
      y.gradient()->contribute(dy.narrow(0, begin, count).clone());
      tape.backward();
      EXPECT_LT(testing::distance(all.dx.narrow(0, begin, count), in.grad()), 1e-6);
      EXPECT_LT(testing::distance(of_expert, weight.variable.grad()), 1e-6);
    }
  }
}

// Tokens are quantized where they are; their copies would have the same codes.
TEST_P(FakeQuantizedExperts, CopiesOfTokensHaveTheTokensCodes) {
  constexpr std::int64_t kTokens = 20;
  Generator random(41);
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < 2 * kTokens; ++i) chosen.push_back(static_cast<std::int32_t>(i * i % kExperts));
  const autograd::TokenPermutation rows =
      autograd::sort_tokens(Tensor::from_values<std::int32_t>({kTokens, 2}, chosen), kExperts, 4);
  const Tensor x = random.normal({kTokens, kIn}, DType::bf16), w = random.normal({kExperts * kOut, kIn}, DType::bf16),
               dy = random.normal({rows.pairs.size(0), kOut}, DType::bf16);
  const ExpertPlan plan =
      recipe().plan_experts({.name = "experts", .in_features = kIn, .out_features = kOut}, RecipeOptions{});
  std::vector<ExpertResult> results;
  for (const bool copied : {false, true}) {
    const Variable in = Variable::leaf(x);
    nn::Parameter weight;
    weight.variable = Variable::leaf(w);
    autograd::Tape tape;
    Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = copied ? plan.kernel->apply(autograd::permute_tokens(in, rows), weight, rows)
                 : plan.kernel->apply_to_tokens(in, weight, rows);
    }
    const Tensor value = y.value();
    y.gradient()->contribute(dy);
    tape.backward();
    results.push_back({value, in.grad(), weight.variable.grad()});
  }
  EXPECT_TRUE(testing::same_bits(results[0].y, results[1].y));
  EXPECT_TRUE(testing::same_bits(results[0].dx, results[1].dx));
  EXPECT_TRUE(testing::same_bits(results[0].dw, results[1].dw));
}

INSTANTIATE_TEST_SUITE_P(Recipes, FakeQuantizedExperts, ::testing::ValuesIn(weight_recipes()),
                         [](const auto& recipe) { return std::string(recipe.param->name); });

nn::ModelConfig moe() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 48, "hidden_size": 32,
    "intermediate_size": 48, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "mlp_only_layers": [0]})"),
                                "config.json");
}

TEST(ConvertExperts, AreLayersOfTheWalk) {
  nn::CausalLm model(moe(), {});
  const auto rows = apply_recipe(model, kMxfp8, {{}, {"lm_head"}});
  EXPECT_EQ(conversion_of(rows, "model.layers.1.mlp.experts.gate_up_proj").kernel, "mxfp8");
  EXPECT_EQ(conversion_of(rows, "model.layers.1.mlp.experts.gate_up_proj").out_features, 64);
  EXPECT_EQ(conversion_of(rows, "model.layers.1.mlp.experts.down_proj").experts, 4);
  EXPECT_EQ(conversion_of(rows, "model.layers.0.mlp.gate_up_proj").kernel, "mxfp8");
  EXPECT_THAT(conversion_report(rows), HasSubstr("model.layers.*.mlp.experts.down_proj of 4 experts"));
  for (const LayerConversion& r : rows) EXPECT_THAT(r.name, ::testing::Not(HasSubstr("mlp.gate."))) << "the router";
}

TEST(ConvertExperts, FiltersNameThem) {
  nn::CausalLm model(moe(), {});
  const auto only = apply_recipe(model, kFloat8Rowwise, {{"*experts*"}, {}}, {.emulate = true});
  EXPECT_EQ(conversion_of(only, "model.layers.1.mlp.experts.down_proj").kernel, "float8_rowwise");
  EXPECT_EQ(conversion_of(only, "model.layers.1.self_attn.qkv_proj").kernel, "high precision");
  const auto without = apply_recipe(model, kMxfp8, {{}, {"*experts.gate_proj", "lm_head"}});
  EXPECT_EQ(conversion_of(without, "model.layers.1.mlp.experts.gate_up_proj").skipped_because,
            "in recipe.filter.exclude");
  EXPECT_EQ(conversion_of(without, "model.layers.1.mlp.experts.down_proj").kernel, "mxfp8");
}

TEST(ConvertExperts, RecipesWithoutGroupedProductsSaySo) {
  nn::CausalLm model(moe(), {});
  const auto rows = apply_recipe(model, kFloat8Tensorwise, {{}, {"lm_head"}}, {.emulate = true});
  EXPECT_EQ(conversion_of(rows, "model.layers.1.mlp.experts.down_proj").skipped_because,
            "float8_tensorwise has no grouped GEMMs for experts");
  EXPECT_EQ(conversion_of(rows, "model.layers.1.self_attn.qkv_proj").kernel, "float8_tensorwise");
}

// What is trained under such a recipe will be stored in few bits: experts too.
TEST(ConvertExperts, ThoseThatGroupsDoNotDivideAreRefused) {
  nn::CausalLm model(moe(), {});
  const auto refusal = [&](const Recipe& recipe, const RecipeOptions& options) -> std::string {
    const auto rows = apply_recipe(model, recipe, {{"*experts*"}, {}}, options);
    try {
      require_layers(recipe, rows);
      return "taken";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal(kQatInt4WeightOnly, {.group_size = 24}),
              HasSubstr("model.layers.*.mlp.experts.down_proj in layers 1, 32 inputs: recipe.group_size 24 does not "
                        "divide its 32 inputs; 8, 16, 32"));
  EXPECT_THAT(refusal(find_recipe("sparse24"), {}), HasSubstr("sparse24 has no grouped GEMMs for experts"));
  EXPECT_EQ(refusal(kQatInt4WeightOnly, {.group_size = 16}), "taken");
}

}  // namespace
}  // namespace quench::recipes
