// Keys of delayed scaling.

#include <gmock/gmock.h>

#include "config_testing.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;

TEST(ScalingCheck, DelayedScalingIsForTensorwiseFloat8) {
  const std::string delayed = "--recipe.scaling=delayed", tensorwise = "--recipe.name=float8_tensorwise";
  EXPECT_EQ(complaint({delayed, tensorwise, "--recipe.amax_history=1", "--recipe.amax_margin=2"}), "");
  for (const std::string name : {"bf16", "float8_rowwise", "float8_blockwise", "mxfp8", "int8_rowwise"})
    EXPECT_THAT(complaint({delayed, "--recipe.name=" + name}),
                HasSubstr("recipe.scaling: \"delayed\", but recipe.name " + name + " does not use it"));
  EXPECT_THAT(complaint({delayed, "--recipe.name=auto"}),
              HasSubstr("recipe.scaling: delayed, but recipe.name is auto, which may choose a recipe without it; set "
                        "recipe.name to float8_tensorwise"));
  EXPECT_THAT(complaint({tensorwise, "--recipe.amax_history=4"}),
              HasSubstr("recipe.amax_history: has no effect unless recipe.scaling is \"delayed\""));
  EXPECT_THAT(complaint({tensorwise, "--recipe.amax_margin=1"}),
              HasSubstr("recipe.amax_margin: has no effect unless recipe.scaling is \"delayed\""));
  EXPECT_THAT(complaint({delayed, tensorwise, "--recipe.amax_history=0"}), HasSubstr("recipe.amax_history"));
  EXPECT_THAT(complaint({delayed, tensorwise, "--recipe.amax_margin=-1"}), HasSubstr("recipe.amax_margin"));
  EXPECT_THAT(complaint({tensorwise, "--recipe.scaling=late"}), HasSubstr("recipe.scaling"));
}

}  // namespace
}  // namespace quench
