#include <gmock/gmock.h>

#include "core/system/check.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

distributed::Environment third_rank() {
  distributed::Environment place;
  place.rank = 6;
  place.local_rank = 2;
  place.local_world_size = 4;
  place.world_size = 8;
  place.by_agent = true;
  return place;
}

TEST(GpuOfRank, IsThatOfItsPlaceOnTheMachine) {
  EXPECT_EQ(gpu_of_rank(third_rank(), 4), 2);
  EXPECT_EQ(gpu_of_rank(third_rank(), 3), 2);
}

// Slurm's --gpus-per-task=1: each task sees its own. The processes of quench run and torchrun see the same.
TEST(GpuOfRank, IsTheOnlyOneThatItsTaskSees) {
  distributed::Environment place = third_rank();
  EXPECT_THROW((void)gpu_of_rank(place, 1), Error);
  place.by_agent = false;
  EXPECT_EQ(gpu_of_rank(place, 1), 0);
  EXPECT_EQ(gpu_of_rank(place, 4), 2);
  EXPECT_THROW((void)gpu_of_rank(place, 2), Error);
  EXPECT_THROW((void)gpu_of_rank(place, 0), Error);
}

TEST(GpuOfRank, MoreRanksThanGpusAreRefused) {
  const auto message = [](int gpus) {
    try {
      (void)gpu_of_rank(third_rank(), gpus);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return std::string(error.what());
    }
    return std::string();
  };
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(message(2), "rank 6 has local rank 2 on a machine with 2 GPUs; start no more processes than GPUs");
  EXPECT_THAT(message(0), ::testing::HasSubstr("on a machine with 0 GPUs;"));
  ::setenv("CUDA_VISIBLE_DEVICES", "0,,x", 1);
  EXPECT_THAT(message(1), ::testing::HasSubstr("on a machine with 1 GPU (CUDA_VISIBLE_DEVICES=0,,x); start no more"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace quench
