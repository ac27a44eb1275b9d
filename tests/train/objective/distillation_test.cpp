#include "train/objectives/distillation/run/distillation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/modules/initialize.h"
#include "recipes/convert.h"
#include "recipes/lora/adapters.h"
#include "tests/testing.h"
#include "train/step/meta_batch.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

nn::ModelConfig small_config() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
                      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                      "max_position_embeddings": 64, "tie_word_embeddings": false})"),
      "test");
}

Batch random_batch(std::int64_t rows, std::int64_t length) {
  Batch batch;
  batch.input_ids = Tensor::empty({rows, length}, DType::i32);
  batch.labels = Tensor::empty({rows, length}, DType::i32);
  batch.positions = Tensor::empty({rows, length}, DType::i32);
  for (std::int64_t i = 0; i < rows * length; ++i) {
    batch.input_ids.data<std::int32_t>()[i] = static_cast<std::int32_t>((i * 7 + 3) % 40);
    batch.labels.data<std::int32_t>()[i] = i % 5 == 0 ? kIgnoreLabel : static_cast<std::int32_t>((i * 11 + 1) % 40);
    batch.positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % length);
    batch.valid_tokens += i % 5 != 0;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    batch.sequences.push_back({.q_begin = r * length, .q_length = length, .k_begin = r * length, .k_length = length});
  return batch;
}

std::unique_ptr<nn::CausalLm> make_model(std::uint64_t seed, bool trainable = true) {
  auto model = std::make_unique<nn::CausalLm>(small_config(), nn::ParameterOptions{.trainable = trainable});
  model->initialize(seed);
  // Logits far from uniform.
  for (nn::Parameter* parameter : model->parameters()) {
    const Tensor value = parameter->variable.value();
    if (value.shape().rank() == 2)
      for (std::int64_t i = 0; i < value.numel(); ++i) value.data<float>()[i] *= 8;
  }
  return model;
}

ObjectiveInput input_of(const nn::CausalLm& model, const Batch& batch) {
  const std::int64_t tokens = batch.input_ids.numel();
  return {.batch = batch,
          .ids = batch.input_ids.view({tokens}),
          .labels = batch.labels.view({tokens}),
          .context = batch_context(model, batch)};
}

std::vector<std::vector<double>> probabilities(const nn::CausalLm& model, const ObjectiveInput& in) {
  const autograd::NoGrad no_grad;
  const Tensor logits = model.logits(model.hidden(in.ids, in.context));
  std::vector<std::vector<double>> rows;
  for (std::int64_t i = 0; i < logits.size(0); ++i) {
    std::vector<double>& row = rows.emplace_back();
    double sum = 0;
    for (std::int64_t j = 0; j < logits.size(1); ++j)
      sum += row.emplace_back(std::exp(static_cast<double>(logits.data<float>()[i * logits.size(1) + j])));
    for (double& p : row) p /= sum;
  }
  return rows;
}

// Mean over rows with labels.
double mean_kl(const std::vector<std::vector<double>>& p, const std::vector<std::vector<double>>& q,
               const Batch& batch) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    for (std::size_t j = 0; batch.labels.data<std::int32_t>()[i] != kIgnoreLabel && j < p[i].size(); ++j)
      sum += p[i][j] * std::log(p[i][j] / q[i][j]);
  return sum / static_cast<double>(batch.valid_tokens);
}

struct Outcome {
  double loss = 0;
  std::vector<double> metrics;
};

Outcome run_objective(DistillationObjective& objective, const nn::CausalLm& model, const Batch& batch,
                      std::int64_t chunk_rows = 0, autograd::Recompute recompute = autograd::Recompute::none) {
  ObjectiveInput in = input_of(model, batch);
  objective.prepare(in);
  in.context.recompute = recompute;
  const std::int64_t count = std::ssize(objective.metric_names());
  const Tensor metrics = Tensor::empty({count}, DType::f32);
  autograd::Tape tape(recompute);
  autograd::Variable loss;
  {
    const autograd::TapeScope scope(tape);
    loss = objective.loss(in, 1.0f / static_cast<float>(batch.valid_tokens), {.chunk_rows = chunk_rows}, metrics);
  }
  tape.backward(loss);
  return {static_cast<double>(*loss.value().data<float>()), {metrics.data<float>(), metrics.data<float>() + count}};
}

TEST(Distillation, LossAndMetricsAreThoseOfBothModels) {
  const auto student = make_model(1);
  FrozenModel second;
  second.model = make_model(2, false);
  const Batch batch = random_batch(2, 12);
  const ObjectiveInput in = input_of(*student, batch);
  const double kl = mean_kl(probabilities(*second.model, in), probabilities(*student, in), batch);
  double cross_entropy = 0;
  {
    const autograd::NoGrad no_grad;
    cross_entropy = static_cast<double>(*student->loss(in.ids, in.labels, in.context, 1).value().data<float>()) /
                    static_cast<double>(batch.valid_tokens);
  }
  DistillationObjective objective(*student, live_targets(frozen_teacher(std::move(second))),
                                  {.temperature = 1, .ratio = 0.75f});
  for (const std::int64_t chunk : {0, 5}) {
    const Outcome outcome = run_objective(objective, *student, batch, chunk);
    EXPECT_NEAR(outcome.metrics[0], kl, 1e-5);
    EXPECT_NEAR(outcome.metrics[1], cross_entropy, 1e-5);
    EXPECT_NEAR(outcome.loss, 0.25 * cross_entropy + 0.75 * kl, 1e-5);
  }
}

TEST(Distillation, GradientsReachEveryWeightAndLowerTheDivergence) {
  const auto student = make_model(1);
  FrozenModel second;
  second.model = make_model(2, false);
  DistillationObjective objective(*student, live_targets(frozen_teacher(std::move(second))), {});
  const Batch batch = random_batch(2, 12);
  const double before = run_objective(objective, *student, batch).loss;
  for (int step = 0; step < 3; ++step) {
    for (nn::Parameter* parameter : student->parameters()) {
      const std::shared_ptr<autograd::Gradient>& gradient = parameter->variable.gradient();
      ASSERT_TRUE(gradient != nullptr) << parameter->name;
      gradient->reset();
    }
    (void)run_objective(objective, *student, batch);
    for (nn::Parameter* parameter : student->parameters()) {
      const Tensor value = parameter->variable.value(), slope = parameter->variable.grad();
      double norm = 0;
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        norm += std::abs(static_cast<double>(slope.data<float>()[i]));
        value.data<float>()[i] -= 0.02f * slope.data<float>()[i];
      }
      EXPECT_GT(norm, 0) << parameter->name;
      parameter->mark_changed();
    }
  }
  EXPECT_LT(run_objective(objective, *student, batch).loss, before);
}

// With adapters of no effect yet, the divergence is that of fake quantization alone.
TEST(Distillation, BaseTeacherHasNeitherAdaptersNorFakeQuantization) {
  const auto plain = make_model(1), student = make_model(1);
  const recipes::LoraOptions lora{.rank = 4, .alpha = 8, .targets = {"*"}};
  recipes::Adapters adapters(*student, recipes::lora_layers(*student, lora), lora, student->options());
  recipes::freeze_base(*student);
  (void)recipes::apply_recipe(*student, recipes::kQatInt4WeightOnly, {}, {.weight_bits = 4, .group_size = 16});
  adapters.attach();
  for (nn::Parameter* parameter : adapters.parameters()) nn::initialize_parameter(*parameter, 5);
  const Batch batch = random_batch(2, 12);
  const ObjectiveInput in = input_of(*student, batch);
  const auto quantized = probabilities(*student, in), whole = probabilities(*plain, in);
  const double kl = mean_kl(whole, quantized, batch);
  ASSERT_GT(kl, 1e-3);
  DistillationObjective objective(*student, live_targets(base_teacher(*student)), {});
  const Outcome outcome = run_objective(objective, *student, batch);
  EXPECT_NEAR(outcome.loss, kl, 1e-5);
  // The student runs on its own kernels again.
  EXPECT_EQ(probabilities(*student, in), quantized);
  for (nn::Parameter* parameter : student->parameters())
    EXPECT_EQ(parameter->variable.gradient() != nullptr, parameter->adapter) << parameter->name;
}

TEST(Distillation, AnUnchangedStudentHasNoDivergence) {
  const auto student = make_model(1);
  DistillationObjective objective(*student, live_targets(base_teacher(*student)),
                                  {.divergence = Divergence::jensen_shannon});
  const Outcome outcome = run_objective(objective, *student, random_batch(1, 8));
  EXPECT_NEAR(outcome.loss, 0, 1e-6);
  EXPECT_GT(outcome.metrics[1], 0);
}

// Outputs of layers, by layer.
class AllOutputs final : public nn::LayerOutputs {
 public:
  bool takes(std::int64_t /*layer*/) const override { return true; }
  autograd::Variable take(std::int64_t layer, const autograd::Variable& hidden) override {
    EXPECT_EQ(layer, std::ssize(states));
    states.push_back(hidden.value());
    return hidden;
  }
  std::vector<Tensor> states;
};

std::vector<Tensor> layer_outputs(const nn::CausalLm& model, const Batch& batch) {
  const autograd::NoGrad no_grad;
  ObjectiveInput in = input_of(model, batch);
  const std::vector<float> plain = [&] {
    const Tensor hidden = model.hidden(in.ids, in.context).value();
    return std::vector<float>(hidden.data<float>(), hidden.data<float>() + hidden.numel());
  }();
  AllOutputs outputs;
  in.context.layer_outputs = &outputs;
  const Tensor hidden = model.hidden(in.ids, in.context).value();
  EXPECT_EQ(std::vector<float>(hidden.data<float>(), hidden.data<float>() + hidden.numel()), plain);
  return outputs.states;
}

double mean_squares(const Tensor& a, const Tensor& b, const Batch& batch) {
  double sum = 0;
  const std::int64_t width = a.size(1);
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (batch.labels.data<std::int32_t>()[i / width] == kIgnoreLabel) continue;
    const double d = static_cast<double>(a.data<float>()[i]) - static_cast<double>(b.data<float>()[i]);
    sum += d * d / static_cast<double>(width);
  }
  return sum / static_cast<double>(batch.valid_tokens);
}

TEST(HiddenStates, LayersAreSpreadOverTheTeachersDepth) {
  for (std::int64_t layer = 0; layer < 7; ++layer) EXPECT_EQ(spread_layer(layer, 7, 7), layer);
  EXPECT_EQ(spread_layer(0, 2, 4), 1);
  EXPECT_EQ(spread_layer(1, 2, 4), 3);
  EXPECT_EQ(spread_layer(0, 4, 2), 0);
  EXPECT_EQ(spread_layer(1, 4, 2), 0);
  EXPECT_EQ(spread_layer(2, 4, 2), 1);
  EXPECT_EQ(spread_layer(3, 4, 2), 1);
}

TEST(HiddenStates, TheLossIsThatOfBothModelsStates) {
  const auto student = make_model(1);
  FrozenModel second;
  second.model = make_model(2, false);
  const Batch batch = random_batch(2, 12);
  const std::vector<Tensor> own = layer_outputs(*student, batch), other = layer_outputs(*second.model, batch);
  ASSERT_EQ(own.size(), 2u);
  const double expected = (mean_squares(own[0], other[1], batch) + mean_squares(own[1], other[1], batch)) / 2;
  DistillationObjective objective(
      *student, live_targets(frozen_teacher(std::move(second))),
      {.ratio = 0.5f, .hidden = {.layers = {{0, 1}, {1, 1}}, .distance = HiddenDistance::mse, .weight = 3.0f}});
  EXPECT_EQ(objective.metric_names().back(), "hidden_states");
  const Outcome outcome = run_objective(objective, *student, batch);
  ASSERT_EQ(outcome.metrics.size(), 3u);
  EXPECT_NEAR(outcome.metrics[2], expected, 1e-5 * expected);
  const double whole = 0.5 * outcome.metrics[0] + 0.5 * outcome.metrics[1] + 3 * expected;
  EXPECT_NEAR(outcome.loss, whole, 1e-5 * whole);
}

// Directional derivative against central differences, and the same bits under recompute.
TEST(HiddenStates, GradientsAreThoseOfTheLoss) {
  for (const HiddenDistance distance : {HiddenDistance::mse, HiddenDistance::cosine, HiddenDistance::normalized_mse}) {
    SCOPED_TRACE(static_cast<int>(distance));
    const auto student = make_model(1);
    FrozenModel second;
    second.model = make_model(2, false);
    DistillationObjective objective(
        *student, live_targets(frozen_teacher(std::move(second))),
        {.ratio = 0.5f, .hidden = {.layers = {{0, 0}, {1, 1}}, .distance = distance, .weight = 2.0f}});
    const Batch batch = random_batch(2, 12);
    std::vector<std::vector<float>> first;
    for (const autograd::Recompute recompute :
         {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
      for (nn::Parameter* parameter : student->parameters())
        if (parameter->variable.gradient() != nullptr) parameter->variable.gradient()->reset();
      (void)run_objective(objective, *student, batch, 0, recompute);
      std::vector<std::vector<float>> gradients;
      for (nn::Parameter* parameter : student->parameters()) {
        const Tensor slope = parameter->variable.grad();
        ASSERT_TRUE(slope.defined()) << parameter->name;
        gradients.emplace_back(slope.data<float>(), slope.data<float>() + slope.numel());
      }
      if (first.empty()) first = gradients;
      EXPECT_EQ(gradients, first);
    }
    // Along the gradient itself.
    double squared = 0;
    for (const std::vector<float>& gradient : first)
      for (const float g : gradient) squared += static_cast<double>(g) * static_cast<double>(g);
    const double step = 2e-3 / std::sqrt(squared);
    const auto loss_at = [&](double distance_along) {
      std::size_t at = 0;
      std::vector<std::vector<float>> kept;
      for (nn::Parameter* parameter : student->parameters()) {
        const Tensor value = parameter->variable.value();
        kept.emplace_back(value.data<float>(), value.data<float>() + value.numel());
        for (std::int64_t i = 0; i < value.numel(); ++i)
          value.data<float>()[i] +=
              static_cast<float>(distance_along * static_cast<double>(first[at][static_cast<std::size_t>(i)]));
        parameter->mark_changed();
        ++at;
      }
      const double loss = run_objective(objective, *student, batch).loss;
      at = 0;
      for (nn::Parameter* parameter : student->parameters()) {
        std::ranges::copy(kept[at++], parameter->variable.value().data<float>());
        parameter->mark_changed();
      }
      return loss;
    };
    const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
    EXPECT_NEAR(measured, squared, 0.01 * squared);
  }
}

TEST(HiddenStates, TheTeachersAreReleasedLayerByLayer) {
  const auto student = make_model(1);
  const Batch batch = random_batch(1, 8);
  const HiddenOptions options{.layers = {{0, 1}, {1, 1}}};
  TeacherStates teacher(options.layers);
  EXPECT_FALSE(teacher.takes(0));
  EXPECT_TRUE(teacher.takes(1));
  const autograd::Variable state(Tensor::zeros({8, 32}, DType::f32));
  EXPECT_EQ(teacher.take(1, state).value().raw_data(), state.value().raw_data());
  StudentStates own(options, teacher, batch.labels.view({8}), 1);
  EXPECT_TRUE(own.takes(0));
  (void)own.take(0, state);
  EXPECT_FALSE(teacher.release(0).defined());
  EXPECT_TRUE(teacher.release(1).defined());
}

// The base under adapters teaches the student under fake quantization.
TEST(HiddenStates, OfTheBaseUnderAdapters) {
  const auto plain = make_model(1), student = make_model(1);
  const recipes::LoraOptions lora{.rank = 4, .alpha = 8, .targets = {"*"}};
  recipes::Adapters adapters(*student, recipes::lora_layers(*student, lora), lora, student->options());
  recipes::freeze_base(*student);
  (void)recipes::apply_recipe(*student, recipes::kQatInt4WeightOnly, {}, {.weight_bits = 4, .group_size = 16});
  adapters.attach();
  for (nn::Parameter* parameter : adapters.parameters()) nn::initialize_parameter(*parameter, 5);
  const Batch batch = random_batch(2, 12);
  const double expected = mean_squares(layer_outputs(*student, batch)[1], layer_outputs(*plain, batch)[1], batch);
  ASSERT_GT(expected, 1e-4);
  DistillationObjective objective(*student, live_targets(base_teacher(*student)), {.hidden = {.layers = {{1, 1}}}});
  const Outcome outcome = run_objective(objective, *student, batch);
  EXPECT_NEAR(outcome.metrics[2], expected, 1e-4 * expected);
  for (nn::Parameter* parameter : student->parameters())
    EXPECT_EQ(parameter->variable.gradient() != nullptr, parameter->adapter) << parameter->name;
}

}  // namespace
}  // namespace quench
