// Batches of several processes: what fits is named.

#include <gmock/gmock.h>

#include "config_testing.h"
#include "train/check/check.h"

namespace quench {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string refusal(std::int64_t whole, std::int64_t micro, std::int64_t ranks) {
  RunConfig config;
  config.training.global_batch_size = whole;
  config.training.micro_batch_size = micro;
  try {
    (void)accumulation_steps(config, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchCheck, BatchesOfSeveralProcessesNameWhatFits) {
  EXPECT_EQ(refusal(24, 12, 2), "");
  EXPECT_THAT(refusal(12, 12, 2),
              HasSubstr("12 is not divisible by micro_batch_size 12 x 2 ranks = 24; nearest: 24, or "
                        "training.micro_batch_size 6"));
  EXPECT_THAT(refusal(20, 8, 2), EndsWith("nearest: 16 or 32, or training.micro_batch_size 5"));
  EXPECT_THAT(refusal(13, 4, 2), EndsWith("nearest: 8 or 16"));
}

}  // namespace
}  // namespace quench
