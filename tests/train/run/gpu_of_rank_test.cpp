#include <gmock/gmock.h>

#include "core/system/check.h"
#include "train/setup/parallel_setup.h"

namespace quench {
namespace {

distributed::Environment third_rank() {
  distributed::Environment place;
  place.rank = 6;
  place.local_rank = 2;
  place.local_world_size = 4;
  place.world_size = 8;
  return place;
}

TEST(GpuOfRank, IsThatOfItsPlaceOnTheMachine) {
  EXPECT_EQ(gpu_of_rank(third_rank(), 4), 2);
  EXPECT_EQ(gpu_of_rank(third_rank(), 3), 2);
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
