#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/report/curve.h"

namespace quench {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Curve ramp(int count) {
  Curve curve;
  for (int i = 0; i < count; ++i) curve.push_back({static_cast<double>(i), static_cast<double>(i)});
  return curve;
}

TEST(CurveDecimate, KeepsEverySpikeBothEndsAndTheOrder) {
  Curve curve = ramp(100000);
  for (Point& point : curve) point.y = 1;
  for (const std::size_t spike : {1u, 777u, 50000u, 99998u}) curve[spike].y = 100 + static_cast<double>(spike);
  curve[31415].y = -5;
  const Curve few = decimate(curve, 500);
  EXPECT_LE(few.size(), 1002u);
  EXPECT_GT(few.size(), 400u);
  for (const std::size_t kept : {0u, 1u, 777u, 31415u, 50000u, 99998u, 99999u})
    EXPECT_TRUE(std::any_of(few.begin(), few.end(), [&](const Point& point) {
      return point.x == curve[kept].x && point.y == curve[kept].y;
    })) << kept;
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST(CurveDecimate, LeavesShortCurvesAndUnevenSpacingAlone) {
  EXPECT_EQ(decimate(ramp(10), 500).size(), 10u);
  EXPECT_EQ(decimate({}, 500).size(), 0u);
  Curve uneven = ramp(2000);
  uneven.back().x = 1e6;  // every other point falls into the first span
  const Curve few = decimate(uneven, 10);
  EXPECT_LE(few.size(), 22u);
  EXPECT_EQ(few.back().x, 1e6);
  Curve same_step = ramp(100);
  for (Point& point : same_step) point.x = 5;
  EXPECT_LE(decimate(same_step, 10).size(), 22u);
}

TEST(CurveDecimate, AWideGapStaysAGap) {
  Curve curve = ramp(10000);
  for (std::size_t i = 4000; i < 6000; ++i) curve[i].y = kNan;
  const Curve few = decimate(curve, 100);
  const auto gaps = std::count_if(few.begin(), few.end(), [](const Point& point) { return std::isnan(point.y); });
  EXPECT_GE(gaps, 18);
  EXPECT_LE(gaps, 22);
}

TEST(CurveSmooth, KeepsConstantsAndGapsAndHasNoLag) {
  Curve constant = ramp(100);
  for (Point& point : constant) point.y = 3;
  constant[50].y = kNan;
  const Curve same = smooth(constant, 10);
  for (std::size_t i = 0; i < same.size(); ++i) {
    if (i == 50)
      EXPECT_TRUE(std::isnan(same[i].y));
    else
      EXPECT_NEAR(same[i].y, 3, 1e-12) << i;
  }
  const Curve line = smooth(ramp(1000), 10);
  EXPECT_NEAR(line[500].y, 500, 1e-6);
}

TEST(CurveSmooth, ReducesNoise) {
  Curve noisy = ramp(1000);
  for (std::size_t i = 0; i < noisy.size(); ++i) noisy[i].y = i % 2 == 0 ? 1 : -1;
  for (const Point& point : smooth(noisy, 20)) EXPECT_LT(std::abs(point.y), 0.2);
}

TEST(CurveValues, StatisticsIgnoreGaps) {
  const Curve curve = {{0, 5}, {1, kNan}, {2, 1}, {3, 3}, {4, kNan}};
  EXPECT_EQ(median(curve), 3);
  EXPECT_EQ(maximum(curve), 5);
  EXPECT_EQ(last_value(curve)->y, 3);
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_TRUE(std::isnan(maximum({{1, kNan}})));
  EXPECT_EQ(last_value({{1, kNan}}), nullptr);
}

}  // namespace
}  // namespace quench
