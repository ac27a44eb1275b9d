// training.recompute_mlp_layers: the feed-forward's first product recomputed in the backward pass.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/ops/elementwise.h"
#include "nn/modules/linear.h"
#include "nn/optim/adamw.h"
#include "recipes/recipe.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/plan/estimate.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

using autograd::ActivationPolicy;
using autograd::Recompute;
using autograd::SavePolicy;
using ::testing::HasSubstr;
using testing::TinyRun;
using Activations = TrainingSection::ActivationCheckpoint;

constexpr std::int64_t kLayers = 4;
constexpr std::int32_t kTokens = 46;

nn::ModelConfig model_config() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "mlp_bias": true})"),
      "config.json");
}

Batch make_batch(std::int32_t seed) {
  Batch batch;
  for (Tensor* tensor : {&batch.input_ids, &batch.labels, &batch.positions})
    *tensor = Tensor::empty({2, kTokens / 2}, DType::i32);
  for (std::int32_t i = 0; i < kTokens; ++i) {
    batch.input_ids.data<std::int32_t>()[i] = (i * 7 + seed) % 64;
    batch.labels.data<std::int32_t>()[i] = (i * 11 + seed) % 64;
    batch.positions.data<std::int32_t>()[i] = i % (kTokens / 2);
  }
  for (std::int64_t r = 0; r < 2; ++r)
    batch.sequences.push_back({r * kTokens / 2, kTokens / 2, r * kTokens / 2, kTokens / 2});
  batch.valid_tokens = kTokens;
  return batch;
}

// Another kernel, whose second runs are counted.
class CountedLinear final : public nn::LinearKernelWrapper {
 public:
  CountedLinear(std::shared_ptr<const nn::LinearKernel> kernel, int& again)
      : LinearKernelWrapper(std::move(kernel)), again_(again) {}
  [[nodiscard]] bool supports(const nn::LinearCall& call, const nn::Parameter& weight,
                              const autograd::Weight& bias) const override {
    return call.mode == nn::LinearMode::recompute || LinearKernelWrapper::supports(call, weight, bias);
  }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const autograd::Weight& bias) const override {
    if (call.mode != nn::LinearMode::recompute) return LinearKernelWrapper::do_run(call, weight, bias);
    ++again_;
    return {nn::Variable(wrapped().recompute(call.x, weight, bias))};
  }

  int& again_;
};

// A model under a recipe that counts, layer by layer, how often its products run again.
struct CountedModel {
  nn::CausalLm model;
  std::map<std::string, int> again;

  CountedModel(std::string_view recipe, const recipes::RecipeOptions& options, DType dtype)
      : model(model_config(), {.dtype = dtype, .grad_dtype = DType::f32}) {
    model.initialize(7);
    model.visit([&](const std::string& name, nn::Module& module) {
      auto* linear = dynamic_cast<nn::Linear*>(&module);
      if (linear == nullptr || name == "lm_head") return;
      const recipes::LinearPlan plan = recipes::find_recipe(recipe).plan(linear->info(name), options);
      linear->set_kernel(std::make_shared<CountedLinear>(plan.kernel, again[name]));
    });
  }

  // Biases start at 0, where nothing would show that they were added again.
  void fill_biases() {
    for (nn::Parameter* parameter : model.parameters()) {
      if (!parameter->name.ends_with(".bias")) continue;
      const Tensor numbers = Tensor::empty(parameter->global_shape, DType::f32);
      for (std::int64_t i = 0; i < numbers.numel(); ++i)
        numbers.data<float>()[i] = static_cast<float>(i % 5 - 2) * 0.03125f;
      cast({numbers, parameter->variable.value()});
    }
  }
};

std::string bytes(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {static_cast<const char*>(tensor.raw_data()), tensor.nbytes()};
}

// Loss and gradients of two accumulated micro-batches, as bytes.
std::map<std::string, std::string> results(nn::CausalLm& model, Recompute level, ActivationPolicy plan) {
  nn::AdamW optimizer(model.parameters(), {});
  TrainStep step(model, optimizer, {.recompute = level, .activations = std::move(plan)});
  const std::vector<Batch> batches{make_batch(3), make_batch(5)};
  const GradientReport report = step.accumulate(batches, 1);
  std::map<std::string, std::string> all{{"loss", fmt::format("{:a} {:a}", report.loss, report.grad_norm)}};
  for (const nn::Parameter* parameter : model.parameters()) all[parameter->name] = bytes(parameter->variable.grad());
  return all;
}

struct Case {
  std::string_view name;
  std::string_view recipe;
  DType dtype = DType::bf16;
  recipes::RecipeOptions options = {};
};

class RecomputedProducts : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static CountedModel make() { return {GetParam().recipe, GetParam().options, GetParam().dtype}; }
};

void expect_second_runs(const CountedModel& counted, const ActivationPolicy& plan, int times) {
  for (const auto& [name, count] : counted.again) {
    const bool first_product = name.ends_with(".mlp.gate_up_proj");
    const std::int64_t layer = std::stoll(name.substr(std::string("model.layers.").size()));
    const bool recomputed = first_product && plan.of(layer) == SavePolicy::recompute;
    EXPECT_EQ(count, recomputed ? times : 0) << name;
  }
}

TEST_P(RecomputedProducts, ChangeNoBit) {
  CountedModel plain = make();
  plain.fill_biases();
  const auto expected = results(plain.model, Recompute::none, {});
  expect_second_runs(plain, {}, 0);
  for (const std::int64_t wanted : {0, 1, 2, 3, 4})
    for (const std::int64_t away : {0, 2}) {
      SCOPED_TRACE(::testing::Message() << wanted << " recomputed, " << away << " offloaded");
      CountedModel again = make();
      again.fill_biases();
      const ActivationPolicy plan(kLayers, away, wanted);
      EXPECT_EQ(results(again.model, Recompute::selective, plan), expected);
      expect_second_runs(again, plan, 2);
    }
}

// Other levels keep to themselves what is saved: the plan takes effect under selective recompute.
TEST_P(RecomputedProducts, BelongToSelectiveRecompute) {
  for (const Recompute level : {Recompute::none, Recompute::full}) {
    CountedModel plain = make(), planned = make();
    EXPECT_EQ(results(planned.model, level, {kLayers, 0, kLayers}), results(plain.model, level, {}));
    expect_second_runs(planned, {}, 0);
  }
}

TEST_P(RecomputedProducts, DoNotNeedTheirWeightsGradient) {
  const auto freeze = [](nn::CausalLm& model) {
    model.visit([&](const std::string& name, nn::Module& module) {
      auto* linear = dynamic_cast<nn::Linear*>(&module);
      if (linear != nullptr && name.ends_with(".gate_up_proj"))
        linear->weight().variable = linear->weight().variable.detach();
    });
  };
  const auto gradients = [](nn::CausalLm& model, const ActivationPolicy& plan) {
    const Batch batch = make_batch(3);
    nn::ForwardContext context = batch_context(model, batch);
    context.recompute = Recompute::selective;
    context.activations = plan;
    autograd::Tape tape(Recompute::selective);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model.loss(batch.input_ids.view({kTokens}), batch.labels.view({kTokens}), context, 1.0f / kTokens);
    }
    tape.backward(loss);
    std::vector<std::string> all{bytes(loss.value())};
    for (const nn::Parameter* parameter : model.parameters()) all.push_back(bytes(parameter->variable.grad()));
    return all;
  };
  CountedModel plain = make(), again = make();
  freeze(plain.model);
  freeze(again.model);
  const ActivationPolicy plan(kLayers, 0, 2);
  EXPECT_EQ(gradients(again.model, plan), gradients(plain.model, {}));
  expect_second_runs(again, plan, 1);
}

TEST_P(RecomputedProducts, AreNoPartOfInference) {
  CountedModel counted = make();
  const Batch batch = make_batch(3);
  nn::ForwardContext context = batch_context(counted.model, batch);
  const std::string expected = bytes(counted.model.hidden(batch.input_ids.view({kTokens}), context).value());
  context.activations = {kLayers, 0, kLayers};
  EXPECT_EQ(bytes(counted.model.hidden(batch.input_ids.view({kTokens}), context).value()), expected);
  expect_second_runs(counted, {}, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, RecomputedProducts,
    ::testing::Values(
        Case{"f32", "bf16", DType::f32}, Case{"bf16", "bf16"}, Case{"tensorwise", "float8_tensorwise"},
        Case{"rowwise", "float8_rowwise"}, Case{"gw_hp", "float8_rowwise_with_gw_hp"},
        Case{"kept_weights", "float8_tensorwise", DType::bf16, {.keep_weights = true}},
        Case{"forward_in_bf16", "float8_rowwise", DType::bf16, {.high_precision = {recipes::LinearGemm::forward}}}),
    [](const auto& entry) { return std::string(entry.param.name); });

TEST(RecomputeMlpLayers, RunsAreTheSame) {
  const TinyRun tiny;
  const std::vector<std::string> base{"--training.dtype=bf16", "--training.steps=4", "--recipe.name=float8_tensorwise",
                                      "--training.activation_checkpoint=selective"};
  tiny.run(tiny.config("plain", base));
  for (const char* layers : {"1", "7"}) {
    std::vector<std::string> options = base;
    options.push_back(std::string("--training.recompute_mlp_layers=") + layers);
    tiny.run(tiny.config(layers, options));
    EXPECT_EQ(tiny.losses(layers), tiny.losses("plain"));
    testing::expect_same_tensors(tiny.checkpoint(layers, 4), tiny.checkpoint("plain", 4));
  }
}

TEST(RecomputeMlpLayers, AreTakenFromTheConfig) {
  const TinyRun tiny;
  const auto plan = [&](std::vector<std::string> options) {
    const RunConfig config = tiny.config("run", options);
    return activation_policy(config, resolve_model_config(config.model));
  };
  const std::string selective = "--training.activation_checkpoint=selective";
  EXPECT_EQ(plan({}).count(SavePolicy::keep), 2);
  EXPECT_EQ(plan({selective, "--training.recompute_mlp_layers=1"}).count(SavePolicy::recompute), 1);
  EXPECT_EQ(plan({selective, "--training.recompute_mlp_layers=9"}).count(SavePolicy::recompute), 2);
  const ActivationPolicy both = plan({selective, "--training.recompute_mlp_layers=9", "--training.offload_layers=1"});
  EXPECT_EQ(both.count(SavePolicy::offload), 1);
  EXPECT_EQ(both.count(SavePolicy::recompute), 1);

  const auto refused = [&](const std::vector<std::string>& options) -> std::string {
    try {
      (void)plan(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({"--training.recompute_mlp_layers=1"}), HasSubstr("set activation_checkpoint to \"selective\""));
  EXPECT_THAT(refused({"--training.recompute_mlp_layers=1", "--training.activation_checkpoint=full"}),
              HasSubstr("\"full\" recomputes whole layers"));
  EXPECT_THROW((void)tiny.config("run", {"--training.recompute_mlp_layers=-1"}), Error);
}

// Each layer but the last saves its tensor at the peak of a step, whatever is offloaded next to it; FLOPs are the
// model's.
TEST(RecomputeMlpLayers, EstimateFallsByTheTensorOfEachLayer) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  std::int64_t resident = 0;  // peak without offloaded layers
  for (const std::int64_t away : {0, 2}) {
    const auto estimate = [&](std::int64_t layers) {
      return estimate_run(
          ResolvedConfig(tiny.config(
              "run", {"--training.dtype=bf16", "--recipe.name=float8_tensorwise", "--recipe.emulate=false",
                      "--model.hidden_size=256", "--model.intermediate_size=2048", "--data.seq_len=1024",
                      "--model.max_position_embeddings=1024", "--model.num_hidden_layers=6",
                      "--training.activation_checkpoint=selective", "--training.offload_layers=" + std::to_string(away),
                      "--training.recompute_mlp_layers=" + std::to_string(layers)})),
          planning);
    };
    const RunEstimate without = estimate(0);
    const std::int64_t tensor = std::int64_t{2} * 1024 * 2 * 2048 * 2;
    // The first offloaded layer's tensor has left the device when memory peaks.
    if (away == 0) {
      resident = without.device.peak;
    } else {
      EXPECT_LE(without.device.peak, resident - tensor);
    }
    // With fewer layers' tensors the peak moves from the end of the forward pass to a layer of the backward pass, where
    // an offloaded tensor is back.
    const std::int64_t moved = away == 0 ? 0 : tensor / 2;
    for (std::int64_t layers = 1; layers <= 5 - away; ++layers) {
      const RunEstimate with = estimate(layers);
      // A maximum of the product's input is kept instead.
      const std::int64_t fall = without.device.peak - with.device.peak;
      EXPECT_LE(fall, layers * (tensor + 1024)) << layers;
      EXPECT_GE(fall, layers * (tensor - 1024) - (layers > 1 ? moved : 0)) << layers;
      EXPECT_EQ(with.offload_bytes, without.offload_bytes);
      EXPECT_EQ(with.flops_per_token.total(), without.flops_per_token.total());
    }
    // The head of this model is small, and the last layer's tensor is back at once.
    EXPECT_LT(estimate(5 - away).device.peak - estimate(6).device.peak, tensor / 2);
  }
}

TEST(RecomputeMlpLayers, AreNamedWhereMemoryIsShort) {
  const TinyRun tiny;
  RunEstimate estimate = estimate_run(ResolvedConfig(tiny.config("run")), Device{});
  estimate.available_bytes = estimate.total_bytes - 1;
  for (const Device target : {Device{}, Device{DeviceType::meta, 0}}) try {
      require_memory(estimate, target);
      FAIL() << "memory was not looked at";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("training.recompute_mlp_layers"));
    }
}

}  // namespace
}  // namespace quench
