#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "recipes/recipe.h"
#include "tests/train/same_tensors.h"
#include "tests/train/trainer_fixture.h"
#include "train/checkpoint/run_lock.h"
#include "train/data_setup.h"
#include "train/estimate.h"
#include "train/hf/model_folder.h"
#include "train/model_setup.h"
#include "train/optimizer_setup.h"
#include "train/planning_batch.h"
#include "train/train_step.h"
#include "train/training_state.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using ::testing::HasSubstr;
using testing::tensor_bytes;
using testing::TinyRun;

std::string error_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Trainer, LossFallsAndCheckpointsAppear) {
  const TinyRun tiny;
  const TrainResult result = tiny.run(tiny.config("run"));
  EXPECT_EQ(result.step, 40);
  EXPECT_EQ(result.stop_signal, 0);
  EXPECT_LT(result.loss, 3.4) << "ln 64 = 4.16 at the start";
  for (const int step : {10, 20, 30, 40}) EXPECT_TRUE(verify_checkpoint(tiny.checkpoint("run", step)).ok()) << step;
  EXPECT_EQ(tiny.losses("run").size(), 40u);
}

// A1 and A3: stopped and resumed equals uninterrupted, with accumulation, packing and stochastic rounding.
void expect_exact_resume(const std::vector<std::string>& overrides) {
  const TinyRun tiny;
  tiny.run(tiny.config("whole", overrides));
  std::vector<std::string> half = overrides;
  half.push_back("--training.steps=20");
  half.push_back("--lr_schedule.decay_steps=36");
  std::vector<std::string> full = overrides;
  full.push_back("--lr_schedule.decay_steps=36");
  tiny.run(tiny.config("whole_fixed", full));
  tiny.run(tiny.config("parts", half));
  tiny.run(tiny.config("parts", full));
  EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole_fixed"));
  expect_same_tensors(tiny.checkpoint("parts", 40), tiny.checkpoint("whole_fixed", 40));
}

TEST(Trainer, ResumeIsExactInF32) {
  expect_exact_resume({});
}

TEST(Trainer, ResumeIsExactInBf16WithStochasticRounding) {
  expect_exact_resume({"--training.dtype=bf16", "--training.master_dtype=none", "--optimizer.state=bf16"});
}

TEST(Trainer, ResumeIsExactInBf16WithMasterWeights) {
  expect_exact_resume({"--training.dtype=bf16"});
}

TEST(Trainer, ResumeIsExactUnderEveryRecipe) {
  for (const recipes::Recipe& recipe : recipes::recipe_table()) {
    SCOPED_TRACE(recipe.name);
    expect_exact_resume(
        {"--training.dtype=bf16", "--recipe.name=" + std::string(recipe.name), "--recipe.keep_weights=true"});
  }
}

TEST(Trainer, ResumeIsExactWithStochasticGradients) {
  for (const std::string recipe : {"float8_tensorwise", "float8_rowwise"}) {
    SCOPED_TRACE(recipe);
    expect_exact_resume({"--training.dtype=bf16", "--recipe.name=" + recipe, "--recipe.gradient_rounding=stochastic"});
  }
}

// A layer that runs again has the draws of the first time; other draws would be another run. (In bf16 full recompute
// differs by itself, by one rounding between layers.)
TEST(Trainer, StochasticGradientsAreTheSameHoweverActivationsAreKept) {
  const TinyRun tiny;
  const std::vector<std::string> nearest{"--training.steps=5", "--recipe.name=float8_rowwise"};
  std::vector<std::string> stochastic = nearest;
  stochastic.push_back("--recipe.gradient_rounding=stochastic");
  for (const std::string level : {"none", "selective", "full"}) {
    std::vector<std::string> options = stochastic;
    options.push_back("--training.activation_checkpoint=" + level);
    tiny.run(tiny.config(level, options));
  }
  tiny.run(tiny.config("nearest", nearest));
  EXPECT_EQ(tiny.losses("none"), tiny.losses("selective"));
  EXPECT_EQ(tiny.losses("none"), tiny.losses("full"));
  EXPECT_NE(tiny.losses("none"), tiny.losses("nearest"));
}

TEST(Trainer, ResumeFromEveryStepIsExact) {
  const TinyRun tiny;
  const std::vector<std::string> base{"--lr_schedule.decay_steps=8", "--checkpoint.interval=1"};
  auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more);
    return all;
  };
  tiny.run(tiny.config("whole", with({"--training.steps=12"})));
  for (int stop = 1; stop < 12; ++stop) {
    const std::string name = "parts" + std::to_string(stop);
    tiny.run(tiny.config(name, with({"--training.steps=" + std::to_string(stop)})));
    tiny.run(tiny.config(name, with({"--training.steps=12"})));
    EXPECT_EQ(tiny.losses(name), tiny.losses("whole")) << "stopped at " << stop;
  }
}

TEST(Trainer, RecomputeLevelsGiveTheSameBits) {
  const TinyRun tiny;
  for (const std::string level : {"none", "selective", "full"})
    tiny.run(tiny.config(level, {"--training.steps=5", "--training.activation_checkpoint=" + level}));
  EXPECT_EQ(tiny.losses("none"), tiny.losses("selective"));
  EXPECT_EQ(tiny.losses("none"), tiny.losses("full"));
}

TEST(Trainer, OneMicroBatchOrFourIsTheSameMean) {
  const TinyRun tiny;
  tiny.run(tiny.config("one", {"--training.steps=6", "--training.micro_batch_size=4"}));
  tiny.run(tiny.config("four", {"--training.steps=6", "--training.micro_batch_size=1"}));
  const auto one = tiny.losses("one"), four = tiny.losses("four");
  ASSERT_EQ(one.size(), four.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(std::stod(one[i].substr(one[i].find(':') + 1)), std::stod(four[i].substr(four[i].find(':') + 1)), 2e-4);
}

TEST(Trainer, ResumeRefusesAnotherModelAndNamesTheKey) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=2"}));
  const std::string message = error_of(
      [&] {
        tiny.run(tiny.config("run", {"--training.steps=4", "--model.num_hidden_layers=3"}));
      },
      ErrorCode::bad_config);
  EXPECT_THAT(message, HasSubstr("num_hidden_layers"));
}

TEST(Trainer, SecondTrainerOnTheSameFolderIsRefused) {
  const TinyRun tiny;
  const RunLock lock(tiny.folder("run"));
  EXPECT_THAT(error_of([&] { tiny.run(tiny.config("run")); }, ErrorCode::locked), HasSubstr("locked by process"));
}

// Choosing a recipe looks at the folder's checkpoints and may measure for a minute: not in a folder that is in use.
TEST(Trainer, ALockedFolderIsRefusedBeforeARecipeIsChosen) {
  const TinyRun tiny;
  std::filesystem::create_directories(tiny.folder("run"));
  const RunConfig config =
      tiny.config("run", {"--recipe.name=auto", "--checkpoint.resume=" + tiny.folder("run").string()});
  EXPECT_THAT(error_of([&] { tiny.run(config); }, ErrorCode::not_found), HasSubstr("manifest"))
      << "it is no checkpoint";
  const RunLock lock(tiny.folder("run"));
  EXPECT_THAT(error_of([&] { tiny.run(config); }, ErrorCode::locked), HasSubstr("locked by process"));
}

TEST(Trainer, DamagedNewestCheckpointFallsBackToTheOneBefore) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=20", "--lr_schedule.decay_steps=36"}));
  tiny.run(tiny.config("whole", {"--lr_schedule.decay_steps=36"}));
  const auto file = tiny.checkpoint("run", 20) / "rank-00000.safetensors";
  ASSERT_TRUE(std::filesystem::exists(file));
  {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(-5, std::ios::end);
    stream.put('\x7f');
  }
  tiny.run(tiny.config("run", {"--lr_schedule.decay_steps=36"}));
  EXPECT_EQ(tiny.losses("run"), tiny.losses("whole"));
  // Asked for by number, it is refused instead.
  EXPECT_THAT(error_of(
                  [&] {
                    tiny.run(tiny.config("run", {"--training.steps=50",
                                                 "--checkpoint.resume=" + tiny.checkpoint("run", 10).string() + "x"}));
                  },
                  ErrorCode::bad_config),
              HasSubstr("step-10x"));
}

TEST(Trainer, StopSignalSavesAndReportsItself) {
  const TinyRun tiny;
  const RunConfig config = tiny.config("run", {"--training.steps=100000", "--checkpoint.interval=0"});
  std::thread sender([&] {
    while (!std::filesystem::exists(tiny.folder("run") / "metrics" / "metrics.jsonl"))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::kill(::getpid(), SIGTERM);
  });
  const TrainResult result = tiny.run(config);
  sender.join();
  EXPECT_EQ(result.stop_signal, SIGTERM);
  EXPECT_GT(result.step, 0);
  EXPECT_TRUE(verify_checkpoint(tiny.checkpoint("run", static_cast<int>(result.step))).ok());
}

TEST(Trainer, NonfiniteStepStopsWithCleanWeights) {
  const TinyRun tiny;
  // A learning rate that makes the loss overflow after a few updates.
  const RunConfig config =
      tiny.config("run", {"--optimizer.lr=1000", "--training.max_norm=0", "--checkpoint.interval=1"});
  const std::string message = error_of([&] { tiny.run(config); }, ErrorCode::nonfinite);
  EXPECT_THAT(message, HasSubstr("step"));
}

TEST(Trainer, ExportedFolderHoldsTheTrainedWeights) {
  const TinyRun tiny;
  const TrainResult result = tiny.run(tiny.config("run", {"--training.steps=3", "--export.format=hf"}));
  ASSERT_FALSE(result.exported.empty());
  nn::CausalLm model(read_model_config(result.exported), nn::ParameterOptions{});
  load_weights(model, result.exported);
  CheckpointReader reader(tiny.checkpoint("run", 3));
  for (const nn::Parameter* p : model.parameters()) {
    const std::vector<std::byte> stored = tensor_bytes(reader, reader.at(p->name));
    EXPECT_EQ(0, std::memcmp(stored.data(), p->variable.value().raw_data(), stored.size())) << p->name;
  }
}

TEST(Trainer, EstimateIsWhatTheRunReserves) {
  const TinyRun tiny;
  // Large enough that segments of 16 MiB do not decide the ratio.
  const RunConfig config =
      tiny.config("run", {"--training.steps=2", "--checkpoint.enable=false", "--model.hidden_size=512",
                          "--model.intermediate_size=1536", "--model.num_hidden_layers=4",
                          "--model.num_attention_heads=8", "--model.num_key_value_heads=4"});
  const RunEstimate estimate = estimate_run(config, Device{});
  Allocator& host = Allocator::of(Device{});
  host.trim();
  host.reset_peak();
  const std::int64_t before = host.stats().reserved;
  tiny.run(config);
  const auto measured = static_cast<double>(host.stats().peak_reserved - before);
  EXPECT_NEAR(static_cast<double>(estimate.device.peak_reserved + estimate.data_bytes) / measured, 1.0, 0.05);
}

// What a GPU run keeps on the host: checkpoints on their way to disk, batches, and activations that were sent away.
TEST(Trainer, EstimateCountsHostMemoryBesideADevice) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  const RunConfig config = tiny.config("run", {"--training.offload_layers=1"});
  RunEstimate estimate = estimate_run(config, planning);
  ASSERT_EQ(global_batch_size(config), 2 * config.training.micro_batch_size);  // then two are in work
  EXPECT_EQ(estimate.offload_bytes, 2 * config.training.micro_batch_size * config.data.seq_len * 2 *
                                        resolve_model_config(config.model).intermediate_size * 4);
  EXPECT_GT(estimate.staging_bytes, 0);
  EXPECT_EQ(estimate.host_bytes, estimate.data_bytes + estimate.staging_bytes + estimate.offload_bytes);
  EXPECT_NO_THROW(require_memory(estimate, planning));
  estimate.host_available_bytes = estimate.host_bytes - 1;
  try {
    require_memory(estimate, planning);
    FAIL() << "host memory was not looked at";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("checkpoint.async"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("DOES NOT FIT"));
  }
}

// Model, optimizer and steps of a config on the CPU, with state that travels, which runs there refuse for want of use.
struct TravellingState {
  TravellingState(const RunConfig& config, const DataSetup& data, double ratio, double late)
      : setup(build_model(config, Device{})), loader(data.train, {1, 3, 0, 1}, {}) {
    fill_model(*setup.model, config);
    optimizer = make_optimizer(*setup.model, config);
    optimizer->refresh_master();
    restart(ratio, late);
  }

  // As a resumed run does: from what a checkpoint holds, without anything else.
  void restart(double ratio, double late) {
    step.reset();
    step = std::make_unique<TrainStep>(
        *setup.model, *optimizer,
        TrainStepOptions{.loss = {.chunk_rows = 64}, .state_offload_ratio = ratio, .state_late_ratio = late});
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
  std::unique_ptr<nn::AdamW> optimizer;
  std::unique_ptr<TrainStep> step;
  BatchLoader loader;
};

const std::vector<std::vector<std::string>> kOptimizerKinds{
    {"--training.dtype=bf16"},
    {"--training.dtype=bf16", "--training.master_dtype=none", "--training.grad_dtype=bf16", "--optimizer.state=bf16"},
    {"--training.dtype=bf16", "--recipe.name=float8_tensorwise", "--recipe.keep_weights=true"}};

constexpr std::array<std::array<double, 2>, 7> kTravels{
    {{0.4, 0}, {1, 0}, {0.4, 0.1}, {0.4, 1}, {0.7, 0.5}, {1, 0.3}, {1, 1}}};

TEST(Trainer, StateInHostMemoryGivesTheSameBits) {
  const TinyRun tiny;
  for (std::vector<std::string> options : kOptimizerKinds) {
    SCOPED_TRACE(::testing::PrintToString(options));
    options.push_back("--training.micro_batch_size=1");
    const RunConfig config = tiny.config("run", options);
    const DataSetup data = open_data(config, resolve_model_config(config.model));
    const auto trained = [&](double ratio, double late) {
      TravellingState run(config, data, ratio, late);
      for (std::int64_t s = 1; s <= 4; ++s) {
        (void)run.step->accumulate(run.batches(), s);
        run.step->apply(1e-2, s);
      }
      return run.bytes();
    };
    const std::string here = trained(0, 0);
    for (const auto& [ratio, late] : kTravels) EXPECT_EQ(trained(ratio, late) == here, true) << ratio << " " << late;
  }
}

// Between accumulate() and what ends the step, late state is away. However it ends, the next step finds it.
TEST(Trainer, StepsThatAreDroppedBringLateStateBack) {
  const TinyRun tiny;
  for (std::vector<std::string> options : kOptimizerKinds) {
    SCOPED_TRACE(::testing::PrintToString(options));
    options.push_back("--training.micro_batch_size=1");
    const RunConfig config = tiny.config("run", options);
    const DataSetup data = open_data(config, resolve_model_config(config.model));
    const auto trained = [&](double ratio, double late) {
      TravellingState run(config, data, ratio, late);
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
      run.restart(ratio, late);  // an owner that ends in between
      return bytes + run.bytes();
    };
    const std::string here = trained(0, 0);
    for (const auto& [ratio, late] : kTravels) EXPECT_EQ(trained(ratio, late) == here, true) << ratio << " " << late;
  }
}

// What a checkpoint holds between two steps is all that the next ones need.
TEST(Trainer, ResumeIsExactWithLateState) {
  const TinyRun tiny;
  for (std::vector<std::string> options : kOptimizerKinds) {
    SCOPED_TRACE(::testing::PrintToString(options));
    options.push_back("--training.micro_batch_size=1");
    const RunConfig config = tiny.config("run", options);
    const DataSetup data = open_data(config, resolve_model_config(config.model));
    TravellingState whole(config, data, 0, 0), stopped(config, data, 0.7, 0.5), resumed(config, data, 1, 0.6);
    std::vector<std::vector<Batch>> batches;
    for (int s = 0; s < 4; ++s) batches.push_back(whole.batches());
    const auto train = [&](TravellingState& run, std::int64_t from, std::int64_t to) {
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
  }
}

TEST(Trainer, StateInHostMemoryOfACpuRunIsRefused) {
  const TinyRun tiny;
  EXPECT_THAT(error_of([&] { tiny.run(tiny.config("run", {"--optimizer.offload_ratio=0.5"})); }, ErrorCode::bad_config),
              HasSubstr("optimizer.offload_ratio"));
}

TEST(Trainer, EstimateCountsStateThatWaitsInHostMemory) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  const RunEstimate here = estimate_run(tiny.config("run"), planning);
  const RunEstimate away = estimate_run(tiny.config("run", {"--optimizer.offload_ratio=1"}), planning);
  EXPECT_EQ(away.state_offload_bytes, 2 * 4 * here.parameters);
  EXPECT_EQ(away.host_bytes, here.host_bytes + away.state_offload_bytes);
  EXPECT_LE(away.device.peak, here.device.peak);
}

// Where weights, gradients and state are what a step holds most of, the peak falls by what is late.
TEST(Trainer, LateStateLowersThePlannedPeak) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  for (const char* master : {"f32", "none"}) {
    const auto planned = [&](const char* ratio, const char* late) {
      return estimate_run(
          tiny.config("run",
                      {"--model.hidden_size=512", "--model.intermediate_size=1408", "--model.num_hidden_layers=8",
                       "--training.dtype=bf16", std::string("--training.master_dtype=") + master,
                       "--optimizer.state=bf16", std::string("--optimizer.offload_ratio=") + ratio,
                       std::string("--optimizer.return_during_update=") + late}),
          planning);
    };
    const RunEstimate prompt = planned("0.5", "0");
    for (const char* late : {"0.2", "0.4"}) {
      const RunEstimate estimate = planned("0.5", late);
      EXPECT_EQ(estimate.state_offload_bytes, prompt.state_offload_bytes);
      const double won = static_cast<double>(prompt.device.peak - estimate.device.peak);
      EXPECT_GT(won, 0.95 * std::stod(late) * static_cast<double>(prompt.state_offload_bytes)) << late;
    }
  }
}

// Travelling state changes places for a while; then the plan has seen all that the run takes.
TEST(Trainer, EstimateFollowsStateThatTravelsUntilItSettles) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  Allocator& plan = Allocator::of(planning);
  for (const double late : {0.0, 0.3}) {
    const RunConfig config =
        tiny.config("run", {"--model.hidden_size=512", "--model.intermediate_size=1408", "--model.num_hidden_layers=6",
                            "--optimizer.offload_ratio=0.6", fmt::format("--optimizer.return_during_update={}", late)});
    const RunEstimate estimate = estimate_run(config, planning);
    plan.trim();
    plan.reset_peak();
    const ModelSetup setup = build_model(config, planning, planning);
    const auto optimizer = make_optimizer(*setup.model, config);
    TrainStep step(*setup.model, *optimizer,
                   {.loss = loss_options(config, setup.config.vocab_size, planning),
                    .state_offload_ratio = 0.6,
                    .state_late_ratio = late});
    for (std::int64_t s = 1; s <= 120; ++s) {
      const std::vector<Batch> batches(2, planning_batch(config.training.micro_batch_size, config.data.seq_len));
      (void)step.accumulate(batches, s);
      step.apply(0.0, s);
    }
    EXPECT_EQ(plan.stats().peak_reserved, estimate.device.peak_reserved) << late;
  }
}

TEST(Trainer, SteadyStateAsksForNoMemory) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=3", "--checkpoint.enable=false"}));
  const std::int64_t segments = Allocator::of(Device{}).stats().segment_count;
  tiny.run(tiny.config("again", {"--training.steps=20", "--checkpoint.enable=false"}));
  EXPECT_EQ(Allocator::of(Device{}).stats().segment_count, segments);
}

}  // namespace
}  // namespace quench
