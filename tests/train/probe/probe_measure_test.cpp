// What the probe sees of a model, and that it changes nothing of what it looks at.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "nn/modules/linear.h"
#include "recipes/recipe.h"
#include "tests/recipes/float8_testing.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/probe/layer_bench.h"
#include "train/probe/layer_errors.h"
#include "train/probe/observed_linear.h"
#include "train/probe/probe.h"
#include "train/session/model_setup.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

using autograd::Recompute;
using testing::TinyRun;

constexpr std::int64_t kTokens = 48;

std::unique_ptr<nn::CausalLm> make_model(DType dtype) {
  const TinyRun tiny;
  auto model = std::make_unique<nn::CausalLm>(resolve_model_config(tiny.config("run").model),
                                              nn::ParameterOptions{.dtype = dtype, .grad_dtype = dtype});
  model->initialize(5);
  return model;
}

Batch make_batch() {
  Batch batch;
  for (Tensor* tensor : {&batch.input_ids, &batch.labels, &batch.positions})
    *tensor = Tensor::empty({2, kTokens / 2}, DType::i32);
  for (std::int32_t i = 0; i < kTokens; ++i) {
    batch.input_ids.data<std::int32_t>()[i] = (i * 7 + 3) % 64;
    batch.labels.data<std::int32_t>()[i] = (i * 7 + 10) % 64;
    batch.positions.data<std::int32_t>()[i] = i % 24;
  }
  for (std::int64_t r = 0; r < 2; ++r) batch.sequences.push_back({r * 24, 24, r * 24, 24});
  batch.valid_tokens = kTokens;
  return batch;
}

void observe(nn::CausalLm& model, const std::function<void(const std::string&, const LinearOperands&)>& observer) {
  model.visit([&](const std::string& name, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module))
      linear->set_kernel(std::make_shared<ObservedLinear>(
          nn::high_precision_linear_kernel(),
          [observer, name](const LinearOperands& operands) { observer(name, operands); }));
  });
}

// Loss and all gradients as bytes.
std::vector<std::string> results(nn::CausalLm& model, Recompute level, std::int64_t recomputed_products = 0) {
  const Batch batch = make_batch();
  nn::ForwardContext context = batch_context(model, batch);
  context.recompute = level;
  context.activations = {model.config().num_hidden_layers, 0, recomputed_products};
  autograd::Tape tape(level);
  autograd::Variable loss;
  {
    const autograd::TapeScope scope(tape);
    loss = model.loss(batch.input_ids.view({kTokens}), batch.labels.view({kTokens}), context, 1.0f / kTokens);
  }
  tape.backward(loss);
  const auto bytes = [](const Tensor& tensor) {
    return std::string(static_cast<const char*>(tensor.raw_data()), tensor.nbytes());
  };
  std::vector<std::string> all{bytes(loss.value())};
  for (const nn::Parameter* parameter : model.parameters()) all.push_back(bytes(parameter->variable.grad()));
  return all;
}

TEST(ObservedLinear, ChangesNoBitOfTheModel) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Recompute level : {Recompute::none, Recompute::selective, Recompute::full}) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " recompute " << static_cast<int>(level));
      const auto plain = make_model(dtype), observed = make_model(dtype);
      std::map<std::string, int> calls;
      observe(*observed, [&](const std::string& name, const LinearOperands& operands) {
        ++calls[name];
        // What the probe does next to the model.
        for (const recipes::Recipe& recipe : recipes::recipe_table()) {
          const recipes::LinearPlan plan =
              recipe.plan({name, operands.w.size(1), operands.w.size(0), false, Device{}}, {.emulate = true});
          if (plan.kernel != nullptr) (void)run_products(*plan.kernel, operands);
        }
      });
      EXPECT_EQ(results(*plain, level), results(*observed, level, 2));
      EXPECT_EQ(calls.size(), 8u);
      for (const auto& [name, count] : calls) EXPECT_EQ(count, 1) << name;
    }
  }
}

TEST(ObservedLinear, SeesTheOperandsOfTheLayer) {
  const auto made = make_model(DType::f32);
  nn::CausalLm& model = *made;
  std::map<std::string, Tensor> dw;
  observe(model, [&](const std::string& name, const LinearOperands& operands) {
    EXPECT_EQ(operands.x.size(0), kTokens);
    EXPECT_EQ(operands.dy.size(0), kTokens);
    dw[name + ".weight"] = run_products(*nn::high_precision_linear_kernel(), operands).dw;
  });
  (void)results(model, Recompute::selective);
  int compared = 0;
  for (const nn::Parameter* parameter : model.parameters()) {
    const auto at = dw.find(parameter->name);
    if (at == dw.end()) continue;
    ++compared;
    const Tensor grad = parameter->variable.grad();
    EXPECT_EQ(0, std::memcmp(grad.raw_data(), at->second.raw_data(), grad.nbytes())) << parameter->name;
  }
  EXPECT_EQ(compared, 8);
}

TEST(LayerErrors, RelativeErrorIsThatOfTheDefinition) {
  const Tensor exact = testing::random_matrix(37, 21, 1, 1.0f, DType::f32);
  const Tensor x = testing::random_matrix(37, 21, 2, 1.0f, DType::f32);
  const auto values = [](const Tensor& t) { return std::span<const float>(t.data<float>(), 37 * 21); };
  EXPECT_NEAR(relative_error(x, exact), testing::relative_l2(values(x), values(exact)), 1e-6);
  EXPECT_EQ(relative_error(exact, exact), 0);
  EXPECT_EQ(relative_error(Tensor::zeros({2, 3}, DType::bf16), Tensor::zeros({2, 3}, DType::bf16)), 0);
  EXPECT_EQ(relative_error(exact, Tensor::zeros({37, 21}, DType::f32)), std::numeric_limits<double>::infinity());
  x.data<float>()[40] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(ErrorBound{.output = 1e30}.allows({.y = relative_error(x, exact), .dx = 0, .dw = 0}));
  EXPECT_NEAR(decibels(0.01), 40, 1e-9);
}

TEST(LayerErrors, AreThoseOfTheFormats) {
  const auto made = make_model(DType::f32);
  nn::CausalLm& model = *made;
  const ConvertedLayers layers{{"float8_tensorwise", {"qkv_proj", "model.layers.1.mlp.down_proj"}},
                               {"float8_rowwise_with_gw_hp", {"down_proj"}}};
  const auto errors = measure_layer_errors(model, make_batch(), {}, layers, {.emulate = true});
  std::map<std::string, int> count;
  for (const LayerError& e : errors) {
    SCOPED_TRACE(e.recipe + " " + e.layer);
    ++count[e.recipe];
    EXPECT_GT(e.errors.y, 0.02);
    EXPECT_LT(e.errors.y, 0.06);
    if (e.recipe == "float8_tensorwise") {
      EXPECT_GT(e.errors.dw, 0.03);
      EXPECT_LT(e.errors.dw, 0.09);
      EXPECT_GT(e.errors.dx, 0.03);
    } else {
      EXPECT_EQ(e.errors.dw, 0) << "in high precision";
      EXPECT_GT(e.errors.dx, 0.02);
    }
  }
  EXPECT_EQ(count["float8_tensorwise"], 3);
  EXPECT_EQ(count["float8_rowwise_with_gw_hp"], 2);
  model.visit([](const std::string& name, nn::Module& module) {
    const auto* linear = dynamic_cast<nn::Linear*>(&module);
    EXPECT_TRUE(linear == nullptr || &linear->kernel() == nn::high_precision_linear_kernel().get()) << name;
  });
}

TEST(LayerBench, RunsEveryKindUnderEveryRecipe) {
  const TinyRun tiny;
  for (const LayerKind& kind : layer_kinds(resolve_model_config(tiny.config("run").model))) {
    for (const Recompute level : {Recompute::none, Recompute::selective, Recompute::full}) {
      LayerBench bench(kind, {.tokens = 40, .micro_batches = 2, .recompute = level}, Device{});
      for (const recipes::Recipe& recipe : recipes::recipe_table()) {
        const recipes::LinearPlan plan =
            recipe.plan({kind.name, kind.in_features, kind.out_features, false, Device{}}, {.emulate = true});
        if (plan.kernel == nullptr) {  // groups that do not divide these small layers
          EXPECT_NE(plan.skipped_because, "") << kind.name << " " << recipe.name;
          continue;
        }
        EXPECT_GT(bench.milliseconds(*plan.kernel, {.repetitions = 3, .seconds = 0.01}), 0.0)
            << kind.name << " " << recipe.name;
      }
    }
  }
}

TEST(LayerBench, KindsAreTheLayersOfTheModel) {
  const TinyRun tiny;
  const RunConfig config = tiny.config("run");
  nn::CausalLm model(resolve_model_config(config.model), {});
  const std::vector<LayerKind> kinds = layer_kinds(model.config());
  int found = 0;
  model.visit([&](const std::string& name, nn::Module& module) {
    auto* linear = dynamic_cast<nn::Linear*>(&module);
    if (linear == nullptr) return;
    const nn::LinearInfo info = linear->info(name);
    const auto kind = std::ranges::find(kinds, last_component(name), &LayerKind::name);
    ASSERT_NE(kind, kinds.end()) << name;
    ++found;
    EXPECT_EQ(kind->in_features, info.in_features) << name;
    EXPECT_EQ(kind->out_features, info.out_features) << name;
    EXPECT_EQ(kind->has_bias, info.has_bias) << name;
  });
  EXPECT_EQ(found, 8);
}

TEST(Probe, MeasuresARunOnACpuAndKeepsBf16) {
  const TinyRun tiny;
  const std::size_t recipes = probed_recipes().size();
  for (const bool whole : {true, false}) {
    const RunConfig config = tiny.config("run", {"--model.num_hidden_layers=3", "--recipe.filter.exclude=*.o_proj"});
    const ProbeResult result = run_probe(config, Device{}, {.bound = {}, .whole_model = whole});
    EXPECT_TRUE(result.emulated);
    EXPECT_TRUE(result.real_data);
    EXPECT_EQ(result.choice.name, "bf16");
    ASSERT_EQ(result.layers.size(), 4u);
    for (const LayerTimes& layer : result.layers) {
      EXPECT_GT(layer.high_precision, 0);
      ASSERT_EQ(layer.recipes.size(), recipes);
      for (const RecipeTime& time : layer.recipes) {
        EXPECT_EQ(time.skipped_because, layer.kind.name == "o_proj" ? "in recipe.filter.exclude" : "");
        EXPECT_EQ(time.milliseconds > 0, time.skipped_because.empty());
      }
    }
    // Three kinds, three layers or two that stand for them.
    EXPECT_EQ(result.errors.size(), recipes * (whole ? 9 : 6));
    EXPECT_GE(result.candidates.size(), recipes + 1);
    for (const Candidate& candidate : result.candidates) EXPECT_GT(candidate.milliseconds, 0) << candidate.recipe;
    EXPECT_THAT(to_string(result), ::testing::HasSubstr("times below are those of emulation"));
    EXPECT_EQ(to_json(result).at("errors").as_array().size(), result.errors.size());
  }
}

// Loaded weights differ from layer to layer: all are looked at, also where random ones would be sampled.
TEST(Probe, LooksAtEveryLayerOfLoadedWeights) {
  const TinyRun tiny;
  const testing::TempDir folder;
  save_model_folder(*make_model(DType::f32), {folder / "model"}, {.dtype = DType::f32});
  const RunConfig config = parse_run_config(
      fmt::format(R"({{"model": {{"path": "{}"}}, "data": {{"seq_len": 24}}, "training": {{"steps": 1, "dtype": "f32"}},
                      "recipe": {{"filter": {{"skip_first_layers": 1}}}}}})",
                  (folder / "model").string()),
      "loaded", {}, {.data = false});
  const ProbeResult result = run_probe(config, Device{}, {.bound = {}, .whole_model = false});
  EXPECT_TRUE(result.real_weights);
  EXPECT_FALSE(result.real_data);
  EXPECT_FALSE(result.sampled);
  EXPECT_EQ(result.errors.size(), 4 * probed_recipes().size()) << "four kinds of the one layer that the filter leaves";
  for (const LayerError& error : result.errors)
    EXPECT_THAT(error.layer, ::testing::HasSubstr("layers.1.")) << error.recipe;
}

// A layer that the tensor cores do not take, and one beyond a bound that nothing keeps.
TEST(Probe, SaysWhyLayersStayInHighPrecision) {
  const TinyRun tiny;
  const RunConfig config = tiny.config("run", {"--model.intermediate_size=40"});
  const ProbeResult result = run_probe(config, Device{}, {.bound = {.output = 0.01}});
  EXPECT_EQ(result.candidates.size(), 1u) << "bf16 alone";
  const std::string table = to_string(result);
  EXPECT_THAT(table, ::testing::HasSubstr("not multiples of 16"));
  EXPECT_THAT(table, ::testing::HasSubstr("error beyond the bound"));
}

}  // namespace
}  // namespace quench
