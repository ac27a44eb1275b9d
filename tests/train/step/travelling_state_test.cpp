// Steps whose optimizer state waits in host memory, on the CPU and on the meta device, and what is planned for runs
// that have them.

#include <gtest/gtest.h>

#include "tests/train/run/trainer_fixture.h"
#include "train/plan/estimate.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/step/meta_batch.h"
#include "train/step/train_step.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

using testing::TinyRun;

// Model, optimizer and steps of a config on the CPU, with state that travels, which runs there refuse for want of use.
struct TravellingRun {
  TravellingRun(const RunConfig& config, const DataSetup& data, double offload_ratio, bool updates_in_backward = false)
      : setup(build_model(ResolvedConfig(config), Device{})),
        loader(data.train, {1, 3, 0, 1}, {}),
        ratio(offload_ratio),
        streamed(config.optimizer.offload_streamed && offload_ratio > 0),
        in_backward(updates_in_backward) {
    fill_model(*setup.model, config);
    optimizer = make_optimizer(*setup.model, config);
    optimizer->refresh_master();
    restart();
  }

  // As a resumed run does: from what a checkpoint holds, without anything else.
  void restart() {
    step.reset();
    step = std::make_unique<TrainStep>(*setup.model, *optimizer,
                                       TrainStepOptions{.loss = {.chunk_rows = 64},
                                                        .state_offload_ratio = ratio,
                                                        .state_streamed = streamed,
                                                        .max_norm = in_backward ? 0.0 : 1.0,
                                                        .update_in_backward = in_backward});
  }

  std::vector<Batch> batches() {
    std::vector<Batch> result;
    for (int i = 0; i < 3; ++i) result.push_back(std::move(*loader.next()));
    return result;
  }

  [[nodiscard]] std::vector<CheckpointTensor> tensors() const { return training_tensors(*setup.model, *optimizer); }

  [[nodiscard]] std::string bytes() const {
    std::string result;
    for (const CheckpointTensor& tensor : tensors()) {
      const Tensor values = tensor.data.to(Device{});
      result.append(static_cast<const char*>(values.raw_data()), values.nbytes());
    }
    return result;
  }

  ModelSetup setup;
  std::unique_ptr<nn::Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  BatchLoader loader;
  double ratio;
  bool streamed;
  bool in_backward;
};

const std::vector<std::vector<std::string>> kOptimizerKinds{
    {"--training.dtype=bf16"},
    {"--training.dtype=bf16", "--training.master_split=true"},
    {"--training.dtype=bf16", "--training.master_split=true", "--lora.rank=4", "--optimizer.offload_streamed=true",
     "--optimizer.offload_ratio=1", "--training.ema_decay=0.9"},
    {"--training.dtype=bf16", "--training.master_dtype=none", "--training.grad_dtype=bf16", "--optimizer.state=bf16"},
    {"--training.dtype=bf16", "--recipe.name=float8_tensorwise", "--recipe.keep_weights=true"},
    {"--training.dtype=bf16", "--optimizer.offload_streamed=true", "--optimizer.offload_ratio=1",
     "--training.ema_decay=0.9", "--training.ema_dtype=bf16"},
    {"--optimizer.name=muon", "--optimizer.offload_streamed=true", "--optimizer.offload_ratio=1"},
    {"--optimizer.name=adamw_4bit", "--model.hidden_size=256", "--optimizer.offload_streamed=true",
     "--optimizer.offload_ratio=1"}};

constexpr std::array<double, 3> kTravels{0.4, 0.7, 1};

template <class Body>
void for_each_optimizer_kind(const Body& body) {
  const TinyRun tiny;
  for (std::vector<std::string> options : kOptimizerKinds) {
    SCOPED_TRACE(::testing::PrintToString(options));
    options.push_back("--training.micro_batch_size=1");
    const RunConfig config = tiny.config("run", options);
    const DataSetup data = open_data(config, resolve_model_config(config.model));
    body(config, data);
  }
}

// For each kind of optimizer: `train` leaves the bytes in a run whose state travels that it leaves where none does.
template <class Train>
void expect_same_bytes_however_state_travels(const Train& train) {
  for_each_optimizer_kind([&](const RunConfig& config, const DataSetup& data) {
    const auto trained = [&](double ratio) {
      TravellingRun run(config, data, ratio);
      return train(run);
    };
    const std::string here = trained(0);
    for (const double ratio : kTravels) EXPECT_EQ(trained(ratio) == here, true) << ratio;
  });
}

TEST(TravellingState, StateInHostMemoryGivesTheSameBits) {
  expect_same_bytes_however_state_travels([](TravellingRun& run) {
    for (std::int64_t s = 1; s <= 4; ++s) {
      (void)run.step->accumulate(run.batches(), s);
      run.step->apply(1e-2, s);
    }
    return run.bytes();
  });
}

// A layer's state passes through the device in the backward pass.
TEST(TravellingState, StateStreamedThroughTheBackwardPassGivesTheSameBits) {
  for_each_optimizer_kind([](const RunConfig& config, const DataSetup& data) {
    const auto trained = [&](double ratio) {
      TravellingRun run(config, data, ratio, true);
      for (std::int64_t s = 1; s <= 4; ++s) {
        const StepUpdate update{.lr = 1e-2, .number = s};
        // The third step is one update after the pass.
        (void)run.step->accumulate(run.batches(), s, s == 3 ? std::nullopt : std::optional(update));
        run.step->apply(update.lr, update.number);
      }
      return run.bytes();
    };
    const std::string here = trained(0);
    for (const double ratio : kTravels) {
      if (!config.optimizer.offload_streamed) continue;
      EXPECT_TRUE(trained(ratio) == here) << ratio;
    }
  });
}

// However a step ends, the next one finds the state.
TEST(TravellingState, StepsThatAreDroppedLeaveTheState) {
  expect_same_bytes_however_state_travels([](TravellingRun& run) {
    std::vector<Batch> batches = run.batches();
    (void)run.step->accumulate(batches, 1);
    run.step->apply(1e-2, 1);
    (void)run.step->accumulate(batches, 2);  // skipped
    run.step->discard();
    std::string bytes = run.bytes();
    (void)run.step->accumulate(batches, 3);  // and again, to see where the bad number came from
    (void)run.step->accumulate(batches, 3);
    run.step->apply(1e-2, 2);
    bytes += run.bytes();
    (void)run.step->accumulate(batches, 4);
    for (Batch& batch : batches) batch.valid_tokens = 0;
    (void)run.step->accumulate(batches, 5);  // no gradient: moments decay
    run.step->apply(1e-2, 3);
    bytes += run.bytes();
    (void)run.step->accumulate(run.batches(), 6);
    run.restart();  // an owner that ends in between
    return bytes + run.bytes();
  });
}

// A checkpoint between two steps is the complete state for the next ones.
TEST(TravellingState, ResumeIsExact) {
  for_each_optimizer_kind([&](const RunConfig& config, const DataSetup& data) {
    TravellingRun whole(config, data, 0), stopped(config, data, 0.7), resumed(config, data, 1);
    std::vector<std::vector<Batch>> batches;
    for (int s = 0; s < 4; ++s) batches.push_back(whole.batches());
    const auto train = [&](TravellingRun& run, std::int64_t from, std::int64_t to) {
      for (std::int64_t s = from; s <= to; ++s) {
        (void)run.step->accumulate(batches[static_cast<std::size_t>(s - 1)], s);
        run.step->apply(1e-2, s);
      }
    };
    train(whole, 1, 4);
    train(stopped, 1, 2);
    const std::vector<CheckpointTensor> from = stopped.tensors(), to = resumed.tensors();
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) Tensor(to[i].data).copy_from(from[i].data);
    for (nn::Parameter* parameter : resumed.setup.model->parameters()) parameter->mark_changed();
    train(resumed, 3, 4);
    EXPECT_EQ(resumed.bytes() == whole.bytes(), true);
  });
}

TEST(TravellingState, EstimateCountsStateThatWaitsInHostMemory) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  const RunEstimate here = estimate_run(ResolvedConfig(tiny.config("run")), planning);
  const RunEstimate away = estimate_run(ResolvedConfig(tiny.config("run", {"--optimizer.offload_ratio=1"})), planning);
  EXPECT_EQ(away.state_offload_bytes, 2 * 4 * here.parameters);
  EXPECT_EQ(away.host_bytes, here.host_bytes + away.state_offload_bytes);
  EXPECT_LE(away.device.peak, here.device.peak);
}

// State of the two largest neighbouring buckets is on the device, in the update alone.
TEST(TravellingState, EstimateOfStreamedStateHasNoStateAtThePeak) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  const std::vector<std::string> large{"--model.hidden_size=512", "--model.intermediate_size=1408",
                                       "--model.num_hidden_layers=6", "--optimizer.offload_ratio=1"};
  std::vector<std::string> more = large;
  more.emplace_back("--optimizer.offload_streamed=true");
  const RunEstimate away = estimate_run(ResolvedConfig(tiny.config("run", large)), planning),
                    streamed = estimate_run(ResolvedConfig(tiny.config("run", more)), planning);
  EXPECT_EQ(streamed.state_offload_bytes, away.state_offload_bytes);
  EXPECT_EQ(streamed.checkpoint_bytes, away.checkpoint_bytes);
  EXPECT_EQ(streamed.staging_bytes, away.staging_bytes);
  EXPECT_LT(streamed.device.peak, away.device.peak);
}

// Travelling state changes places for a while; then the plan has seen all that the run takes.
TEST(TravellingState, EstimateFollowsStateThatTravelsUntilItSettles) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  Allocator& plan = Allocator::of(planning);
  const RunConfig config = tiny.config("run", {"--model.hidden_size=512", "--model.intermediate_size=1408",
                                               "--model.num_hidden_layers=6", "--optimizer.offload_ratio=0.6"});
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), planning);
  plan.trim();
  plan.reset_peak();
  const ModelSetup setup = build_model(ResolvedConfig(config), planning, planning);
  const auto optimizer = make_optimizer(*setup.model, config);
  TrainStep step(*setup.model, *optimizer,
                 {.loss = loss_options(config, setup.config.vocab_size, planning), .state_offload_ratio = 0.6});
  for (std::int64_t s = 1; s <= 120; ++s) {
    const std::vector<Batch> batches(2, meta_batch(config.training.micro_batch_size, config.data.seq_len));
    (void)step.accumulate(batches, s);
    step.apply(0.0, s);
  }
  EXPECT_EQ(plan.stats().peak_reserved, estimate.device.peak_reserved);
}

}  // namespace
}  // namespace quench
