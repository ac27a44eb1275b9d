#include "train/step/nonfinite_origin.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/sampling/loader.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

// A model, a batch, and the gradients of a step.
class NonfiniteOrigin : public ::testing::Test {
 protected:
  NonfiniteOrigin() {
    fill_model(model(), config_);
    BatchLoader loader(data_.train, {config_.training.micro_batch_size, config_.training.micro_batch_size, 0, 1});
    batches_.push_back(*loader.next());
    TrainStep(model(), *optimizer_, {.loss = loss_}).accumulate(batches_, 1);
  }

  nn::CausalLm& model() { return *setup_.model; }
  nn::Parameter& parameter(const std::string& name) {
    for (nn::Parameter* p : model().parameters())
      if (p->name == name) return *p;
    throw Error(ErrorCode::not_found, name);
  }
  static void spoil(const Tensor& tensor) { tensor.data<float>()[tensor.numel() / 2] = NAN; }

  testing::TinyRun tiny_;
  RunConfig config_ = tiny_.config("run");
  ModelSetup setup_ = build_model(ResolvedConfig(config_), Device{});
  DataSetup data_ = open_data(config_, setup_.config);
  std::unique_ptr<nn::Optimizer> optimizer_ = make_optimizer(model(), config_);
  LmHeadLossOptions loss_ = loss_options(config_, setup_.config.vocab_size, Device{});
  std::vector<Batch> batches_;
};

TEST_F(NonfiniteOrigin, OfASoundStepThereIsNone) {
  EXPECT_EQ(first_nonfinite_weight(model()), "");
  EXPECT_EQ(first_nonfinite_forward(model(), batches_, loss_), "");
  EXPECT_EQ(first_nonfinite_gradient(model()), "");
}

TEST_F(NonfiniteOrigin, TheFirstWeightInForwardOrderIsNamed) {
  spoil(parameter("model.norm.weight").variable.value());
  EXPECT_EQ(first_nonfinite_forward(model(), batches_, loss_), "weight of model.norm");
  spoil(parameter("model.layers.1.input_layernorm.weight").variable.value());
  EXPECT_EQ(first_nonfinite_forward(model(), batches_, loss_), "weight of model.layers.1.input_layernorm");
}

// A backward pass spreads NaN towards the embedding: what is nearest to the loss was first.
TEST_F(NonfiniteOrigin, TheGradientNearestToTheLossIsNamed) {
  for (const nn::Parameter* p : model().parameters()) {
    spoil(p->variable.grad());
    if (p->name == "model.layers.1.self_attn.o_proj.weight") break;
  }
  EXPECT_EQ(first_nonfinite_gradient(model()), "gradient of model.layers.1.self_attn.o_proj.weight");
}

}  // namespace
}  // namespace quench
