// Training objectives on a GPU, next to the CPU.

#include <gtest/gtest.h>

#include "core/device/determinism.h"
#include "tests/cuda_model/gpu_runs.h"
#include "tests/train/run/preference_fixture.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/target_setup.h"

namespace quench {
namespace {

using testing::kGpu;
using testing::loss_of;

void expect_near_losses(const std::vector<std::string>& gpu, const std::vector<std::string>& cpu, double tolerance) {
  ASSERT_EQ(gpu.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(loss_of(gpu[i]), loss_of(cpu[i]), tolerance) << cpu[i];
}

TEST(CudaPreference, LossesFollowTheCpuInF32) {
  const testing::PreferenceRun tiny;
  for (const std::string loss : testing::kPreferenceLosses) {
    SCOPED_TRACE(loss);
    tiny.run(tiny.preference_config(loss + "_gpu", loss), kGpu);
    tiny.run(tiny.preference_config(loss + "_cpu", loss));
    expect_near_losses(tiny.losses(loss + "_gpu"), tiny.losses(loss + "_cpu"), 1e-4);
  }
}

TEST(CudaPreference, AdaptersFollowTheCpuWithTheBaseAsReference) {
  const testing::PreferenceRun tiny;
  const std::vector<std::string> lora{"--lora.rank=4"};
  tiny.run(tiny.preference_config("gpu", "dpo", lora), kGpu);
  tiny.run(tiny.preference_config("cpu", "dpo", lora));
  expect_near_losses(tiny.losses("gpu"), tiny.losses("cpu"), 1e-4);
}

TEST(CudaPreference, ResumeIsExact) {
  const testing::PreferenceRun tiny;
  const std::vector<std::string> fixed{"--training.deterministic=true", "--training.dtype=bf16",
                                       "--lr_schedule.decay_steps=6"};
  std::vector<std::string> half = fixed;
  half.emplace_back("--training.steps=4");
  tiny.run(tiny.preference_config("whole", "dpo", fixed), kGpu);
  tiny.run(tiny.preference_config("parts", "dpo", half), kGpu);
  tiny.run(tiny.preference_config("parts", "dpo", fixed), kGpu);
  set_deterministic(false);
  EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
  testing::expect_same_tensors(tiny.checkpoint("parts", 8), tiny.checkpoint("whole", 8));
}

// The teacher runs next to the student, or its most probable tokens are stored before. Without fake quantization: a
// code that a rounding turns changes later losses by more than any tolerance.
TEST(CudaDistillation, LossesFollowTheCpuInF32) {
  const testing::TinyRun tiny;
  for (const std::string loss : {"forward_kl", "reverse_kl", "jensen_shannon"}) {
    SCOPED_TRACE(loss);
    const std::vector<std::string> live{"--training.steps=6", "--distill.loss=" + loss, "--distill.ratio=0.75",
                                        "--distill.temperature=2", "--checkpoint.enable=false"};
    tiny.run(tiny.config(loss + "_gpu", live), kGpu);
    tiny.run(tiny.config(loss + "_cpu", live));
    expect_near_losses(tiny.losses(loss + "_gpu"), tiny.losses(loss + "_cpu"), 2e-4);

    RunConfig targets = tiny.config("targets", live);
    DistillSection& section = *distill_section(targets);
    section.targets = tiny.folder(loss + "_targets").string();
    section.top_k = 64;
    section.targets_dtype = DType::f32;
    (void)make_targets(targets, kGpu, distributed::Ranks::single());
    std::vector<std::string> stored = live;
    stored.insert(stored.end(),
                  {"--distill.targets=" + section.targets, "--distill.top_k=64", "--distill.targets_dtype=f32"});
    tiny.run(tiny.config(loss + "_stored", stored), kGpu);
    expect_near_losses(tiny.losses(loss + "_stored"), tiny.losses(loss + "_cpu"), 2e-4);
  }
}

}  // namespace
}  // namespace quench
