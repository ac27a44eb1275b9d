// Whole training runs on a GPU.

#include "train/trainer.h"

#include <gtest/gtest.h>

#include "core/allocator.h"
#include "core/determinism.h"
#include "tests/cuda_model/gpu_runs.h"

namespace quench {
namespace {

using testing::expect_exact_resume;
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

TEST(CudaTrainer, ResumeIsExactInF32) {
  expect_exact_resume({});
}
TEST(CudaTrainer, ResumeIsExactInBf16WithMasterWeights) {
  expect_exact_resume({"--training.dtype=bf16"});
}
TEST(CudaTrainer, ResumeIsExactInBf16WithStochasticRounding) {
  expect_exact_resume({"--training.dtype=bf16", "--training.master_dtype=none", "--optimizer.state=bf16"});
}

// A GPU run goes on from a CPU run's checkpoint, and the other way round.
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
