#pragma once
// Losses and gradients of a step in pipeline stages, against those of the whole model.

#include <algorithm>

#include "distributed/pipeline/pipeline_channels.h"
#include "distributed/pipeline/stage_exchange.h"
#include "distributed/pipeline/stage_layers.h"
#include "nn/optim/table.h"
#include "tests/distributed/one_pass.h"

namespace quench::testing {

struct PipelinePass {
  std::string model;  // members of config.json
  DType dtype = DType::f32;
  std::int64_t length = 33;  // tokens of a row
  double tolerance = 1e-5;   // relative, of the loss and of the norm of each parameter's gradient
  int chunks = 1;
  int micro_batches = 4;
  autograd::Recompute recompute = autograd::Recompute::none;

  // Every rank is a stage of a ring.
  void check(const distributed::Ranks& ranks, Device device) const {
    const nn::ModelConfig config = nn::parse_model_config(
        Json::parse(fmt::format(R"({{"vocab_size": 61, "num_hidden_layers": {}, "max_position_embeddings": 8192, {}}})",
                                2 * ranks.size * chunks, model)),
        "the test");
    distributed::StageExchange exchange(ranks, chunks, device);
    const std::vector<std::int64_t> layers =
        distributed::balanced_layers(config, length, std::int64_t{ranks.size} * chunks);
    nn::CausalLm one(config, {.dtype = dtype, .device = device});
    nn::CausalLm stage(config, {.dtype = dtype, .device = device}, distributed::stage_chunks(layers, exchange.place()));
    for (nn::CausalLm* each : {&one, &stage}) each->initialize(7);
    // Twice: buffers and messages of a step are those of the next one too.
    for (int step = 1; step <= 2; ++step) {
      const GradientReport expected = gradients(one, {.recompute = recompute}, step),
                           got = gradients(stage, {.recompute = recompute, .ranks = &ranks, .stages = &exchange}, step);
      expect_near(got.loss, expected.loss, std::abs(expected.loss), tolerance, "loss");
      expect_near(got.grad_norm, expected.grad_norm, expected.grad_norm, tolerance, "norm of the gradients");
      const std::vector<nn::Parameter*> all = one.parameters();
      for (const nn::Parameter* parameter : stage.parameters()) {
        const auto whole = std::ranges::find(all, parameter->name, &nn::Parameter::name);
        expect_same_gradient(parameter->variable.grad(), (*whole)->variable.grad(), tolerance, parameter->name);
      }
    }
  }

 private:
  GradientReport gradients(nn::CausalLm& on, const TrainStepOptions& options, int number) const {
    const auto optimizer = nn::make_optimizer(nn::find_optimizer("sgd"), on.parameters(), {});
    TrainStep step(on, *optimizer, options);
    std::vector<Batch> batches;
    for (int i = 0; i < micro_batches; ++i) batches.push_back(pass_batch(length));
    return step.accumulate(batches, number);
  }
};

// Each pass with one chunk and two, at each level of recomputation, as it is and in bf16, and of one micro-batch.
// `all`: ranks of any mesh, whose groups of all ranks are those of the stages.
inline void check_pipeline_passes(const std::shared_ptr<distributed::World>& world, const distributed::Ranks& all,
                                  Device device, const std::vector<PipelinePass>& passes) {
  distributed::Ranks ranks = all;
  ranks.mesh = {.pipeline = world->size()};
  ranks.pipeline = ranks.world;
  ranks.channels = distributed::make_pipeline_channels(world, ranks, true, true);
  for (const PipelinePass& pass : passes)
    for (const autograd::Recompute recompute :
         {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
      PipelinePass one = pass;
      one.recompute = recompute;
      for (const auto& [chunks, micro_batches] :
           {std::pair{1, 1}, {1, 2 * world->size() + 1}, {2, 2 * world->size()}}) {
        one.chunks = chunks;
        one.micro_batches = micro_batches;
        one.check(ranks, device);
      }
      one.dtype = DType::bf16;
      one.tolerance = 0.05;
      one.check(ranks, device);
    }
}

// Scenario of group_driver, MODEL TOLERANCE.
inline void pipeline_passes(const std::shared_ptr<distributed::World>& world, const std::vector<std::string>& options) {
  check_pipeline_passes(world, distributed::make_ranks(world, {.pipeline = world->size()}), {},
                        {{.model = options[0], .tolerance = std::stod(options[1])}});
}

}  // namespace quench::testing
