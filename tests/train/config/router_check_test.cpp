// Router settings of a run.

#include <gmock/gmock.h>

#include "config_testing.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;

// Without a bias on the choice nothing would move; adapters are saved without the model that has it.
TEST(RouterCheck, RouterBiasSpeedNeedsATrainedExpertBias) {
  const std::string speed = "--training.router_bias_speed=0.01", deepseek = "--model.preset=tiny-deepseek";
  EXPECT_THAT(complaint({speed}), HasSubstr("training.router_bias_speed: LlamaForCausalLM has no expert bias"));
  EXPECT_THAT(complaint({speed, "--model.preset=tiny-moe"}), HasSubstr("Qwen3MoeForCausalLM has no expert bias"));
  EXPECT_THAT(complaint({speed, deepseek, "--model.first_k_dense_replace=3"}), HasSubstr("has no expert bias"));
  EXPECT_THAT(complaint({speed, deepseek, "--lora.rank=4"}), HasSubstr("frozen under lora"));
  EXPECT_EQ(complaint({speed, deepseek}), "");
  EXPECT_EQ(complaint({"--training.router_bias_speed=0", "--model.preset=tiny-moe"}), "");
  EXPECT_THAT(complaint({"--training.router_z_loss=0.1", deepseek, "--model.first_k_dense_replace=3"}),
              HasSubstr("has no experts and so no router"));
}

}  // namespace
}  // namespace quench
