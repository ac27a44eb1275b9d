#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/metrics/step_metrics.h"

namespace quench {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

StepMetrics documented_example() {
  StepMetrics metrics;
  metrics.step = 120;
  metrics.total_steps = 1000;
  metrics.loss = 3.28166;
  metrics.grad_norm = 0.9066;
  metrics.lr = 3e-4;
  metrics.tokens_per_second = 47959.7;
  metrics.tflops = 731.2;
  metrics.mfu = 0.7393;
  metrics.memory_bytes = 37903300000;
  metrics.memory_capacity_bytes = 150754000000;
  metrics.eta_seconds = 751.2;
  return metrics;
}

TEST(StepLine, IsTheDocumentedOne) {
  EXPECT_EQ(format_step_line(documented_example()),
            "step 120/1000  loss 3.2817  grad_norm 0.91  lr 3.0e-04  tok/s 47,960  tflops 731  mfu 73.9%  "
            "mem 35.3GiB (25%)  eta 0:12:31");
}

TEST(StepLine, UnknownValuesAreNotMadeUp) {
  StepMetrics metrics;
  metrics.step = 7;
  metrics.loss = 1;
  EXPECT_EQ(format_step_line(metrics),
            "step 7  loss 1.0000  grad_norm 0.00  lr 0.0e+00  tok/s 0  tflops n/a  mfu n/a  mem n/a  eta n/a");
}

TEST(StepLine, NonFiniteValuesArePrintedAsWhatTheyAre) {
  auto metrics = documented_example();
  metrics.loss = kNan;
  metrics.grad_norm = kInf;
  metrics.tokens_per_second = kNan;
  metrics.eta_seconds = kInf;
  metrics.tflops = kInf;
  metrics.skipped_steps = 2;
  EXPECT_EQ(format_step_line(metrics),
            "step 120/1000  loss nan  grad_norm inf  lr 3.0e-04  tok/s n/a  tflops inf  mfu 73.9%  "
            "mem 35.3GiB (25%)  eta n/a  skipped 2");
}

TEST(StepLine, SmallAndLargeNumbersKeepTheirDigits) {
  auto metrics = documented_example();
  metrics.loss = 1234567;
  metrics.grad_norm = 0.00123;
  metrics.tflops = 0.0518;
  metrics.memory_bytes = 200u << 20;
  metrics.memory_capacity_bytes = 0;
  metrics.data_share = 0.34;
  EXPECT_EQ(format_step_line(metrics),
            "step 120/1000  loss 1.2346e+06  grad_norm 1.2e-03  lr 3.0e-04  tok/s 47,960  tflops 0.052  mfu 73.9%  "
            "mem 0.20GiB  eta 0:12:31  data 34%");
  metrics.tflops = 9.996;
  metrics.grad_norm = 2.5e7;
  const std::string line = format_step_line(metrics);
  EXPECT_NE(line.find("tflops 10.0 "), std::string::npos) << line;
  EXPECT_NE(line.find("grad_norm 2.5e+07 "), std::string::npos) << line;
}

TEST(StepLine, CountsAreGroupedByThree) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(StepLine, DurationsDoNotFoldIntoDays) {
  EXPECT_EQ(format_duration(0), "0:00:00");
  EXPECT_EQ(format_duration(59.6), "0:01:00");
  EXPECT_EQ(format_duration(3661), "1:01:01");
  EXPECT_EQ(format_duration(90000), "25:00:00");
  EXPECT_EQ(format_duration(-1), "n/a");
  EXPECT_EQ(format_duration(kNan), "n/a");
  EXPECT_EQ(format_duration(kInf), "n/a");
}

TEST(EvaluationLine, ListsItsValuesInOrder) {
  EvaluationMetrics metrics;
  metrics.step = 500;
  metrics.name = "validation";
  metrics.values = {{"loss", 3.30123}, {"perplexity", 27.146}};
  metrics.tokens = 10240;
  metrics.seconds = 4;
  EXPECT_EQ(format_evaluation_line(metrics),
            "validation at step 500  loss 3.3012  perplexity 27.15  tokens 10,240  time 0:00:04");
}

}  // namespace
}  // namespace quench
