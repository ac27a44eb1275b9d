#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/train/report/page_checks.h"
#include "train/report/line_chart.h"

namespace quench {
namespace {

using testing::check_tags;
using testing::count_of;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

ChartSeries series(const Curve& points, ChartSeries::Look look = ChartSeries::Look::line) {
  return {.label = "x", .points = points, .look = look};
}

TEST(ReportChart, AGapInterruptsTheLine) {
  const std::string chart =
      render_chart({.title = "t"}, {series({{1, 1}, {2, 2}, {3, kNoValue}, {4, 3}, {5, 4}})}, "a");
  check_tags(chart);
  const std::size_t at = chart.find("<path class=\"line");
  const std::string path = chart.substr(at, chart.find("/>", at) - at);
  EXPECT_EQ(count_of(path, "M"), 2u) << path;
  EXPECT_EQ(count_of(path, "L"), 2u) << path;
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
}

TEST(ReportChart, ASingleValueIsADot) {
  const std::string chart = render_chart({.title = "t"}, {series({{7, 3.5}})}, "a");
  check_tags(chart);
  EXPECT_THAT(chart, HasSubstr("<circle class=\"dot s0\""));
  EXPECT_THAT(chart, HasSubstr("<title>step 7  ·  x 3.5</title>"));
}

TEST(ReportChart, NothingToShowIsNothing) {
  EXPECT_EQ(render_chart({.title = "t"}, {}, "a"), "");
  EXPECT_EQ(render_chart({.title = "t"}, {series({})}, "a"), "");
  EXPECT_EQ(render_chart({.title = "t"}, {series({{1, kNoValue}, {2, kNoValue}})}, "a"), "");
}

TEST(ReportChart, TheLogViewExistsWhereThereAreValuesForIt) {
  const ChartOptions options{.title = "t", .log_switch = true};
  const std::string both = render_chart(options, {series({{1, 0}, {2, 10}, {3, 1000}, {4, -1}})}, "a");
  check_tags(both);
  EXPECT_EQ(count_of(both, "<svg"), 2u);
  EXPECT_EQ(count_of(both, "id=\"a-log\""), 1u);
  EXPECT_THAT(both, Not(HasSubstr("inf")));
  EXPECT_EQ(count_of(render_chart(options, {series({{1, -1}, {2, 0}})}, "a"), "<svg"), 1u);
}

TEST(ReportChart, LabelsAreEscapedAndNonFiniteStepsMarked) {
  const std::string chart = render_chart({.title = "<t>", .unit = "&", .flagged = {3}},
                                         {{.label = "<b>", .points = {{1, 1}, {2, 2}}}, series({{1, 2}})}, "a");
  check_tags(chart);
  EXPECT_THAT(chart, HasSubstr("&lt;t&gt;"));
  EXPECT_THAT(chart, HasSubstr("&lt;b&gt; 1"));
  EXPECT_THAT(chart, HasSubstr("step 3: not finite"));
}

TEST(ReportChart, ManyPointsStaySmall) {
  Curve curve;
  for (int i = 0; i < 100000; ++i) curve.push_back({static_cast<double>(i), std::sin(i * 0.7) + i * 1e-5});
  const std::string chart = render_chart({.title = "t", .log_switch = true}, {series(curve)}, "a");
  EXPECT_LT(chart.size(), 200000u);
  check_tags(chart);
}

}  // namespace
}  // namespace quench
