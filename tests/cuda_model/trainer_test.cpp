// Whole training runs on a GPU.

#include "train/run/trainer.h"

#include <gtest/gtest.h>

#include "core/device/determinism.h"
#include "core/memory/allocator.h"
#include "tests/cuda_model/gpu_runs.h"
#include "tests/train/run/sample_run.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

using testing::expect_exact_resume;
using testing::expect_same_tensors;
using testing::kGpu;
using testing::loss_of;
using testing::TinyRun;

TEST(CudaTrainer, LossesFollowTheCpuInF32) {
  const TinyRun tiny;
  tiny.run(tiny.config("gpu"), kGpu);
  tiny.run(tiny.config("cpu"));
  const auto gpu = tiny.losses("gpu"), cpu = tiny.losses("cpu");
  ASSERT_EQ(gpu.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(loss_of(gpu[i]), loss_of(cpu[i]), 2e-3) << cpu[i];
}

TEST(CudaTrainer, LossesInBf16StayNearF32) {
  const TinyRun tiny;
  tiny.run(tiny.config("bf16", {"--training.dtype=bf16"}), kGpu);
  tiny.run(tiny.config("f32"));
  const auto bf16 = tiny.losses("bf16"), f32 = tiny.losses("f32");
  ASSERT_EQ(bf16.size(), f32.size());
  for (std::size_t i = 0; i < f32.size(); ++i)
    EXPECT_NEAR(loss_of(bf16[i]), loss_of(f32[i]), 0.02 * loss_of(f32[i])) << f32[i];
}

// The prompts' passes are captured and launched between training steps and leave them alone.
TEST(CudaTrainer, SamplesAreDrawnWhileItTrains) {
  const testing::SampleRun texts;
  const std::vector<std::string> float8{"--training.dtype=bf16", "--recipe.name=float8_rowwise",
                                        "--training.deterministic=true"};
  std::vector<std::string> without = float8;
  without.insert(without.end(), {"--evaluation.prompts=[]", "--evaluation.interval=0"});
  texts.run(texts.config("with", float8), kGpu);
  texts.run(texts.config("without", without), kGpu);
  set_deterministic(false);
  EXPECT_EQ(texts.samples("with").size(), 6u);
  for (const Json& record : texts.samples("with")) EXPECT_EQ(record.at("tokens").as_array().size(), 6u);
  EXPECT_EQ(texts.losses("with"), texts.losses("without"));
}

TEST(CudaTrainer, ResumeIsExactInF32) {
  expect_exact_resume({});
}
TEST(CudaTrainer, ResumeIsExactInBf16WithMasterWeights) {
  expect_exact_resume({"--training.dtype=bf16"});
}
TEST(CudaTrainer, ResumeIsExactInBf16WithStochasticRounding) {
  expect_exact_resume({"--training.dtype=bf16", "--training.master_dtype=none", "--optimizer.state=bf16"});
}

// A GPU run continues from a CPU run's checkpoint, and the other way round.
TEST(CudaTrainer, CheckpointsMoveBetweenDevices) {
  const TinyRun tiny;
  tiny.run(tiny.config("moved", {"--training.steps=10"}));
  tiny.run(tiny.config("moved", {"--training.steps=20"}), kGpu);
  const TrainResult result = tiny.run(tiny.config("moved", {"--training.steps=40"}));
  EXPECT_EQ(result.step, 40);
  EXPECT_EQ(tiny.losses("moved").size(), 40u);
  EXPECT_LT(result.loss, 3.4);
}

TEST(CudaTrainer, RecomputeLevelsGiveTheSameBits) {
  const TinyRun tiny;
  for (const std::string level : {"none", "selective", "full"})
    tiny.run(tiny.config(level, {"--training.steps=5", "--training.deterministic=true",
                                 "--training.activation_checkpoint=" + level}),
             kGpu);
  tiny.run(tiny.config("products", {"--training.steps=5", "--training.deterministic=true",
                                    "--training.activation_checkpoint=selective", "--training.recompute_mlp_layers=2"}),
           kGpu);
  set_deterministic(false);
  EXPECT_EQ(tiny.losses("none"), tiny.losses("products"));
  EXPECT_EQ(tiny.losses("none"), tiny.losses("selective"));
  EXPECT_EQ(tiny.losses("none"), tiny.losses("full"));
}

TEST(CudaTrainer, StateInHostMemoryGivesTheSameBits) {
  const TinyRun tiny;
  const std::vector<std::vector<std::string>> kinds{
      {"--training.dtype=bf16"},
      {"--training.dtype=bf16", "--training.master_dtype=none", "--training.grad_dtype=bf16", "--optimizer.state=bf16"},
      {"--training.dtype=bf16", "--training.micro_batch_size=1", "--recipe.name=float8_tensorwise"}};
  int number = 0;
  for (const std::vector<std::string>& kind : kinds) {
    const auto run = [&](const std::string& name, std::vector<std::string> more) {
      more.insert(more.end(), kind.begin(), kind.end());
      more.insert(more.end(), {"--training.steps=6", "--training.deterministic=true"});
      tiny.run(tiny.config(name, more), kGpu);
    };
    const std::string here = "here" + std::to_string(number++);
    run(here, {});
    for (const char* ratio : {"0.5", "1"})
      for (const char* streamed : {"false", "true"}) {
        SCOPED_TRACE(::testing::PrintToString(kind) + " " + ratio + " " + streamed);
        const std::string away = "away" + std::to_string(number++);
        run(away, {std::string("--optimizer.offload_ratio=") + ratio,
                   std::string("--optimizer.offload_streamed=") + streamed});
        EXPECT_EQ(tiny.losses(away), tiny.losses(here));
        expect_same_tensors(tiny.checkpoint(away, 6), tiny.checkpoint(here, 6));
      }
  }
  set_deterministic(false);
}

TEST(CudaTrainer, UpdatesInTheBackwardPassGiveTheSameBits) {
  const TinyRun tiny;
  const std::string in_backward = "--optimizer.update_in_backward=true";
  const std::vector<std::vector<std::string>> kinds{
      {"--training.dtype=bf16", "--training.activation_checkpoint=full"},
      {"--training.dtype=bf16", "--training.master_dtype=none", "--training.grad_dtype=bf16", "--optimizer.state=bf16"},
      {"--training.dtype=bf16", "--training.micro_batch_size=1", "--recipe.name=float8_tensorwise"}};
  int number = 0;
  for (const std::vector<std::string>& kind : kinds) {
    SCOPED_TRACE(::testing::PrintToString(kind));
    const auto run = [&](std::vector<std::string> more) {
      const std::string name = "run" + std::to_string(number++);
      more.insert(more.end(), kind.begin(), kind.end());
      more.insert(more.end(), {"--training.steps=6", "--training.deterministic=true", "--training.max_norm=0"});
      tiny.run(tiny.config(name, more), kGpu);
      return name;
    };
    const std::string after = run({});
    for (const std::string& within :
         {run({in_backward}), run({in_backward, "--optimizer.offload_ratio=1", "--optimizer.offload_streamed=true"})}) {
      EXPECT_EQ(tiny.losses(within), tiny.losses(after));
      expect_same_tensors(tiny.checkpoint(within, 6), tiny.checkpoint(after, 6));
    }
  }
  set_deterministic(false);
}

TEST(CudaTrainer, ResumeIsExactWithStateInHostMemory) {
  expect_exact_resume({"--training.dtype=bf16", "--training.master_dtype=none", "--optimizer.state=bf16",
                       "--optimizer.offload_ratio=0.6"});
  expect_exact_resume({"--training.dtype=bf16", "--training.ema_decay=0.99", "--training.ema_dtype=bf16",
                       "--optimizer.offload_ratio=0.6", "--optimizer.offload_streamed=true"});
}

TEST(CudaTrainer, SkippedStepsLeaveStateThatTravels) {
  const TinyRun tiny;
  // A learning rate that makes the loss overflow after a few updates.
  const std::vector<std::string> base{"--optimizer.lr=1000",          "--training.max_norm=0",
                                      "--training.on_nonfinite=skip", "--training.deterministic=true",
                                      "--training.steps=12",          "--training.max_consecutive_skips=12"};
  std::vector<std::string> away = base;
  away.emplace_back("--optimizer.offload_ratio=0.8");
  tiny.run(tiny.config("here", base), kGpu);
  tiny.run(tiny.config("away", away), kGpu);
  set_deterministic(false);
  const std::string log = testing::read_file(tiny.folder("here") / "metrics" / "metrics.jsonl");
  ASSERT_NE(log.find("\"nonfinite\":true"), std::string::npos) << "no step was skipped";
  EXPECT_EQ(tiny.losses("away"), tiny.losses("here"));
  expect_same_tensors(tiny.checkpoint("away", 12), tiny.checkpoint("here", 12));
}

// Large enough that copies take their time: the peak falls by what is away, as the plan says.
TEST(CudaTrainer, StateInHostMemoryLowersThePeakAsPlanned) {
  const TinyRun tiny;
  const std::vector<std::string> base{
      "--model.hidden_size=1024",      "--model.intermediate_size=2816", "--model.num_hidden_layers=8",
      "--model.num_attention_heads=8", "--model.num_key_value_heads=4",  "--training.dtype=bf16",
      "--training.steps=12",           "--checkpoint.enable=false",      "--training.deterministic=true"};
  Allocator& allocator = Allocator::of(kGpu);
  const auto run = [&](const char* name, const char* share, const char* streamed,
                       const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    all.push_back(std::string("--optimizer.offload_ratio=") + share);
    all.push_back(std::string("--optimizer.offload_streamed=") + streamed);
    const RunConfig config = tiny.config(name, all);
    allocator.trim();
    allocator.reset_peak();
    const std::int64_t before = allocator.stats().current;
    tiny.run(config, kGpu);
    const auto peak = static_cast<double>(allocator.stats().peak - before);
    const auto planned = static_cast<double>(estimate_run(ResolvedConfig(config), kGpu).device.peak);
    EXPECT_NEAR(peak, planned, 0.05 * planned) << name;
    return peak;
  };
  (void)run("here", "0", "false");
  (void)run("away", "0.5", "false");
  const double returned = run("returned", "1", "false"), streamed = run("streamed", "1", "true");
  const double within = run("within", "1", "true",
                            {"--optimizer.update_in_backward=true", "--training.max_norm=0",
                             "--training.micro_batch_size=4", "--training.activation_checkpoint=full"});
  set_deterministic(false);
  EXPECT_LT(streamed, returned);
  EXPECT_LT(within, streamed);
  for (const char* name : {"away", "returned", "streamed"}) EXPECT_EQ(tiny.losses(name), tiny.losses("here")) << name;
}

// After three steps nothing more is asked of the driver.
TEST(CudaTrainer, SteadyStateAllocatesNothing) {
  const TinyRun tiny;
  const std::vector<std::string> quiet{"--checkpoint.enable=false", "--training.dtype=bf16",
                                       "--data.packing=false"};  // as many sequences of as many lengths as there are
  const auto steps = [&quiet](int n) {
    std::vector<std::string> all = quiet;
    all.push_back("--training.steps=" + std::to_string(n));
    return all;
  };
  Allocator& allocator = Allocator::of(kGpu);
  const auto segments_of = [&](const char* name, int n) {
    allocator.trim();
    const std::int64_t before = allocator.stats().segment_count;
    tiny.run(tiny.config(name, steps(n)), kGpu);
    return allocator.stats().segment_count - before;
  };
  (void)segments_of("warm", 3);
  EXPECT_EQ(segments_of("long", 40), segments_of("short", 3));
}

}  // namespace
}  // namespace quench
