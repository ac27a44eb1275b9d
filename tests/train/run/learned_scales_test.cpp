#include "train/session/learned_scales.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/train/run/trainer_fixture.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LearnedScales, WhatIsNoPositiveNumberIsNamedByItsLayer) {
  const testing::TinyRun tiny;
  const RunConfig config = tiny.config(
      "run", {"--recipe.name=qat_intx_weight_only", "--recipe.group_size=8", "--recipe.learned_scales=true"});
  for (const float bad : {std::nanf(""), 0.0f, -1.0f, INFINITY}) {
    const ModelSetup setup = build_model(ResolvedConfig(config), Device{});
    fill_model(*setup.model, config);
    EXPECT_NO_THROW(require_positive_scales(*setup.model));
    const auto parameters = setup.model->parameters();
    const auto scales =
        std::ranges::find(parameters, "model.layers.1.mlp.down_proj.weight_scale", &nn::Parameter::name);
    ASSERT_NE(scales, parameters.end());
    ASSERT_EQ((*scales)->global_shape, Shape({32, 6}));
    (*scales)->variable.value().data<float>()[3 * 6 + 2] = bad;
    for (const auto& use : {std::function([&] { require_positive_scales(*setup.model); }),
                            std::function([&] { (void)trained_scales(*setup.model, config); })})
      try {
        use();
        ADD_FAILURE() << bad;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::nonfinite);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("model.layers.1.mlp.down_proj.weight"), HasSubstr("row 3, group 2"),
                                        HasSubstr("expected a positive number")));
      }
  }
}

}  // namespace
}  // namespace quench
