// Execution of float8 GEMMs by device, and its line in the start report.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/float8/hardware.h"

namespace quench::recipes {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Device kCpu{}, kMeta{DeviceType::meta, 0};
constexpr Float8GemmKind kKinds[] = {Float8GemmKind::tensorwise, Float8GemmKind::rowwise, Float8GemmKind::blockwise};

TEST(Float8Path, TheCpuEmulatesAndPlansAssumeTensorCores) {
  for (const Float8GemmKind kind : kKinds) {
    EXPECT_EQ(float8_path(kCpu, kind), GemmPath::emulated);
    EXPECT_EQ(float8_path(kMeta, kind), GemmPath::native);
  }
  EXPECT_FALSE(has_float8_gemms(kCpu));
  EXPECT_TRUE(has_float8_gemms(kMeta));
}

TEST(Float8Path, TheStartReportNamesItForRecipesWithFloat8Gemms) {
  for (const Recipe& recipe : recipe_table()) {
    SCOPED_TRACE(recipe.name);
    const std::string cpu = describe_float8_path(recipe, false, kCpu),
                      meta = describe_float8_path(recipe, false, kMeta);
    if (recipe.capabilities.float8.empty()) {
      EXPECT_THAT(cpu, IsEmpty());
      EXPECT_THAT(meta, IsEmpty());
      continue;
    }
    EXPECT_EQ(
        cpu, std::string(recipe.capabilities.codes()) + " GEMMs: emulated: the quantized values are multiplied in f32");
    EXPECT_THAT(meta, HasSubstr("native"));
    EXPECT_THAT(describe_float8_path(recipe, true, kMeta), HasSubstr("emulated"));
    EXPECT_THAT(describe_float8_path(recipe, true, kMeta), HasSubstr("(recipe.emulate)"));
  }
}

TEST(Float8Path, KindsAreThoseOfTheRecipes) {
  EXPECT_EQ(kFloat8Tensorwise.capabilities.float8_kind, Float8GemmKind::tensorwise);
  EXPECT_EQ(kFloat8Rowwise.capabilities.float8_kind, Float8GemmKind::rowwise);
  EXPECT_EQ(kFloat8RowwiseWithGwHp.capabilities.float8_kind, Float8GemmKind::rowwise);
  EXPECT_EQ(kFloat8Blockwise.capabilities.float8_kind, Float8GemmKind::blockwise);
}

}  // namespace
}  // namespace quench::recipes
