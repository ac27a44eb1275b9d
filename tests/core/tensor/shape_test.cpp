#include "core/tensor/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(Shape, ScalarHasRankZeroAndOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.to_string(), "[]");
  EXPECT_EQ(scalar.contiguous_strides(), Shape());
}

TEST(Shape, AxesCountFromEitherEnd) {
  Shape shape{2, 3, 5};
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  shape[-1] = 7;
  EXPECT_EQ(shape, (Shape{2, 3, 7}));
  EXPECT_THAT(([&] { (void)shape[3]; }), ThrowsMessage<Error>(HasSubstr("axis 3 outside rank 3")));
  EXPECT_THAT(([&] { (void)shape[-4]; }), ThrowsMessage<Error>(HasSubstr("axis -4 outside rank 3")));
  EXPECT_THROW((void)Shape()[0], Error);
}

TEST(Shape, NumelIsTheProduct) {
  EXPECT_EQ((Shape{2, 3, 5}).numel(), 30);
  EXPECT_EQ((Shape{4, 0, 5}).numel(), 0);
  EXPECT_EQ((Shape{kHuge}).numel(), kHuge);
}

TEST(Shape, NumelRefusesOverflowAndNegativeDimensions) {
  EXPECT_THAT(([] { (void)Shape{kHuge, 2}.numel(); }), ThrowsMessage<Error>(HasSubstr("overflows")));
  EXPECT_THAT(([] {
                (void)Shape{std::int64_t{1} << 32, std::int64_t{1} << 31}.numel();
              }),
              ThrowsMessage<Error>(HasSubstr("[4294967296, 2147483648]")));
  EXPECT_THAT(([] { (void)Shape{3, -1}.numel(); }), ThrowsMessage<Error>(HasSubstr("negative dimension in [3, -1]")));
}

TEST(Shape, AZeroDimensionMakesAnyShapeEmpty) {
  EXPECT_EQ((Shape{0, kHuge, 4}).numel(), 0);
  EXPECT_EQ((Shape{kHuge, 4, 0}).numel(), 0);
  EXPECT_EQ((Shape{kHuge, 4, 0}).contiguous_strides().rank(), 3);
}

TEST(Shape, ContiguousStridesAreRowMajor) {
  EXPECT_EQ((Shape{2, 3, 5}).contiguous_strides(), (Shape{15, 5, 1}));
  EXPECT_EQ((Shape{7}).contiguous_strides(), (Shape{1}));
  EXPECT_EQ((Shape{2, 1, 5}).contiguous_strides(), (Shape{5, 5, 1}));
}

TEST(Shape, HoldsUpToEightDimensions) {
  const std::vector<std::int64_t> eight(8, 2), nine(9, 2);
  Shape shape{std::span<const std::int64_t>(eight)};
  EXPECT_EQ(shape.numel(), 256);
  EXPECT_THAT(([&] { shape.push_back(1); }), ThrowsMessage<Error>(HasSubstr("rank exceeds 8")));
  EXPECT_EQ(shape.rank(), 8);
  EXPECT_THAT(([&] { (void)Shape{std::span<const std::int64_t>(nine)}; }),
              ThrowsMessage<Error>(HasSubstr("rank 9 exceeds 8")));
}

TEST(Shape, EqualityComparesRankAndDimensions) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE(Shape(), (Shape{1}));
}

TEST(Shape, IteratesAndPrints) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()), (std::vector<std::int64_t>{2, 3, 5}));
  EXPECT_EQ(shape.to_string(), "[2, 3, 5]");
}

}  // namespace
}  // namespace quench
