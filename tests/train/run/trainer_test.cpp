#include "train/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "core/ops/elementwise.h"
#include "recipes/recipe.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/checkpoint/run_lock.h"
#include "train/model_folder/model_folder.h"
#include "train/plan/estimate.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/step/training_state.h"

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

TEST(Trainer, ResumeIsExactInBf16WithSplitMasterWeights) {
  expect_exact_resume({"--training.dtype=bf16", "--training.master_split=true"});
}

TEST(Trainer, ResumeIsExactUnderEveryRecipe) {
  for (const recipes::Recipe& recipe : recipes::recipe_table()) {
    SCOPED_TRACE(recipe.name);
    // Groups and blocks of 32 divide every layer.
    std::vector<std::string> options{"--training.dtype=bf16", "--model.intermediate_size=64",
                                     "--recipe.name=" + std::string(recipe.name)};
    if (std::ranges::count(recipe.capabilities.keys, "keep_weights") > 0)
      options.emplace_back("--recipe.keep_weights=true");
    expect_exact_resume(options);
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
    // After the first step's record.
    const std::filesystem::path metrics = tiny.folder("run") / "metrics" / "metrics.jsonl";
    std::error_code absent;
    while (std::filesystem::file_size(metrics, absent) == 0 || absent)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(::getpid(), SIGTERM);
  });
  const TrainResult result = tiny.run(config);
  sender.join();
  EXPECT_EQ(result.stop_signal, SIGTERM);
  EXPECT_GT(result.step, 0);
  EXPECT_TRUE(verify_checkpoint(tiny.checkpoint("run", static_cast<int>(result.step))).ok());
}

// The state before the failing step is saved, and the run continues from there as if it had been stopped.
TEST(Trainer, ARunThatEndsByANonfiniteStepSavesWhatWasGood) {
  const TinyRun tiny;
  const std::vector<std::string> base{"--lr_schedule.decay_steps=36", "--checkpoint.interval=0"};
  auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more);
    return all;
  };
  const std::string message = error_of(
      [&] {
        tiny.run(tiny.config("run", with({"--optimizer.lr=1000", "--training.max_norm=0"})));
      },
      ErrorCode::nonfinite);
  const auto logged = tiny.losses("run");
  ASSERT_GE(logged.size(), 2u);
  const int failed = std::stoi(logged.back());
  EXPECT_THAT(message, HasSubstr(fmt::format("step {}: ", failed)));
  EXPECT_TRUE(verify_checkpoint(tiny.checkpoint("run", failed - 1)).ok()) << message;
  EXPECT_FALSE(std::filesystem::exists(tiny.checkpoint("run", failed)));
  EXPECT_EQ(tiny.run(tiny.config("run", with({"--optimizer.lr=1e-9", fmt::format("--training.steps={}", failed + 1),
                                              "--training.on_nonfinite=skip"})))
                .step,
            failed + 1);
}

// Precision may change on resume where that is allowed.
struct Precision {
  std::string dtype, master, state;
};

void expect_converted(const Precision& from, const Precision& to) {
  const TinyRun tiny;
  const auto options = [](const Precision& p, int steps) {
    return std::vector<std::string>{"--training.steps=" + std::to_string(steps),
                                    "--lr_schedule.decay_steps=36",
                                    "--optimizer.lr=1e-2",
                                    "--training.dtype=" + p.dtype,
                                    "--training.master_dtype=" + p.master,
                                    "--optimizer.state=" + p.state,
                                    "--checkpoint.allow_changes=training.dtype,training.master_dtype,optimizer.state"};
  };
  SCOPED_TRACE(fmt::format("{} {} {} to {} {} {}", from.dtype, from.master, from.state, to.dtype, to.master, to.state));
  tiny.run(tiny.config("run", options(from, 10)));
  const TrainResult result = tiny.run(tiny.config("run", options(to, 20)));
  EXPECT_EQ(result.step, 20);
  EXPECT_LT(result.loss, 4.2);

  // The same values, read by a run of no steps.
  const RunConfig config = tiny.config("run", options(to, 20));
  const ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  fill_model(*setup.model, config);
  const auto optimizer = make_optimizer(*setup.model, config);
  CheckpointReader reader(tiny.checkpoint("run", 10));
  restore_training_tensors(reader, *setup.model, *optimizer);
  const auto stored = [&](const std::string& name) {
    const TensorRecord& record = reader.at(name);
    const Tensor tensor = Tensor::empty(record.shape, record.dtype);
    reader.read(name, tensor);
    const Tensor wide = Tensor::empty(record.shape, DType::f32);
    cast({tensor, wide});
    return wide;
  };
  const auto expect_holds = [](const Tensor& tensor, const Tensor& values, const std::string& name) {
    const Tensor expected = Tensor::empty(values.shape(), tensor.dtype());
    cast({values, expected});
    EXPECT_EQ(0, std::memcmp(expected.raw_data(), tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes())))
        << name;
  };
  for (const nn::Parameter* p : setup.model->parameters()) {
    const std::string master = nn::Optimizer::master_name(*p);
    const bool exact = to.dtype == "f32" && reader.find(master) != nullptr;
    expect_holds(p->variable.value(), stored(exact ? master : p->name), p->name);
  }
  for (const auto& state : optimizer->state())
    expect_holds(state.tensor, stored(reader.find(state.name) != nullptr ? state.name : state.parameter->name),
                 state.name);
}

TEST(Trainer, PrecisionMayChangeOnResumeIfAllowed) {
  const Precision f32{"f32", "f32", "f32"}, bf16{"bf16", "f32", "f32"}, light{"bf16", "none", "bf16"};
  for (const auto& [from, to] :
       {std::pair{f32, bf16}, {bf16, f32}, {bf16, light}, {light, bf16}, {light, f32}, {f32, light}})
    expect_converted(from, to);
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
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
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
  RunEstimate estimate = estimate_run(ResolvedConfig(config), planning);
  ASSERT_EQ(global_batch_size(config),
            2 * config.training.micro_batch_size);  // the second uses the memory of the first
  EXPECT_EQ(estimate.offload_bytes, config.training.micro_batch_size * config.data.seq_len * 2 *
                                        resolve_model_config(config.model).intermediate_size * 4);
  const RunEstimate inputs = estimate_run(
      ResolvedConfig(tiny.config("run", {"--training.offload_layers=2", "--training.activation_checkpoint=full"})),
      planning);
  EXPECT_EQ(inputs.offload_bytes, 2 * config.training.micro_batch_size * config.data.seq_len *
                                      resolve_model_config(config.model).hidden_size * 4);
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

TEST(Trainer, StateInHostMemoryOfACpuRunIsRefused) {
  const TinyRun tiny;
  EXPECT_THAT(error_of([&] { tiny.run(tiny.config("run", {"--optimizer.offload_ratio=0.5"})); }, ErrorCode::bad_config),
              HasSubstr("optimizer.offload_ratio"));
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
