#include "core/number/bounded_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quench {
namespace {

TEST(BoundedCode, TruncatesWithinItsBounds) {
  EXPECT_EQ(bounded_code(6.9f, 0, 15), 6);
  EXPECT_EQ(bounded_code(-6.9f, -8, 7), -6);
  EXPECT_EQ(bounded_code(-0.5f, 0, 15), 0);
}

TEST(BoundedCode, WhatNoIntegerHoldsBecomesABound) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bounded_code(kInfinity, -128, 127), 127);
  EXPECT_EQ(bounded_code(3e9f, -128, 127), 127);
  EXPECT_EQ(bounded_code(-kInfinity, -128, 127), -128);
  EXPECT_EQ(bounded_code(std::nanf(""), -128, 127), -128);
}

}  // namespace
}  // namespace quench
