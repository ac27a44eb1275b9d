// Learning from samples on a GPU.

#include <gtest/gtest.h>

#include "core/device/determinism.h"
#include "tests/cuda/gpu.h"
#include "tests/train/run/grpo_fixture.h"
#include "tests/train/run/same_tensors.h"

namespace quench {
namespace {

using testing::GrpoTinyRun;
using testing::kGpu;

TEST(CudaGrpo, TheRewardRisesInF32AndBf16) {
  const GrpoTinyRun tiny;
  for (const char* dtype : {"f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    tiny.run(tiny.config(dtype,
                         {"--training.steps=40", "--checkpoint.interval=0", "--training.dtype=" + std::string(dtype)}),
             kGpu);
    const std::vector<double> rewards = tiny.values(dtype, "reward");
    EXPECT_GT(testing::mean_of_range(rewards, 35, 40), testing::mean_of_range(rewards, 0, 5) + 0.4);
    // The engine's passes and the training pass differ by rounding alone.
    for (const double difference : tiny.values(dtype, "sampling_logp_difference"))
      EXPECT_LT(difference, dtype == std::string("f32") ? 1e-4 : 5e-2);
  }
}

TEST(CudaGrpo, StepsOverTheSameSamplesResumeBitForBit) {
  const GrpoTinyRun tiny;
  const std::vector<std::string> options = {"--training.deterministic=true", "--training.steps=6",
                                            "--grpo.num_iterations=3", "--checkpoint.interval=1"};
  tiny.run(tiny.config("whole", options), kGpu);
  std::vector<std::string> rest = options;
  rest.push_back("--checkpoint.resume=" + tiny.checkpoint("whole", 2).string());
  tiny.run(tiny.config("rest", rest), kGpu);
  set_deterministic(false);
  testing::expect_same_tensors(tiny.checkpoint("rest", 6), tiny.checkpoint("whole", 6));
}

}  // namespace
}  // namespace quench
