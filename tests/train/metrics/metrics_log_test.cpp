#include <gtest/gtest.h>

#include "core/system/check.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/metrics/json_lines.h"
#include "train/metrics/metrics_log.h"
#include "train/metrics/run_files.h"
#include "train/metrics/step_timer.h"

namespace quench {
namespace {

using testing::CapturedLog;

class CountingSink final : public MetricsSink {
 public:
  CountingSink(int& steps, int fail_from) : steps_(steps), fail_from_(fail_from) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "a counter"; }
  void step(const StepMetrics& metrics) override {
    if (steps_ + 1 >= fail_from_) QUENCH_FAIL(ErrorCode::no_space, "no space left");
    ++steps_;
    EXPECT_GT(metrics.unix_time, 1.6e9);
  }
  void evaluation(const EvaluationMetrics&) override {}
  void sample(const SampleRecord&) override {}
  void rewind(std::int64_t) override {}

 private:
  int& steps_;
  int fail_from_;
};

TEST(MetricsLog, AFailingSinkIsDroppedWithOneWarningAndTheOthersGoOn) {
  const CapturedLog captured;
  int healthy = 0, failing = 0;
  MetricsLog log;
  log.add(std::make_unique<CountingSink>(failing, 3));
  log.add(std::make_unique<CountingSink>(healthy, 1000));
  for (int step = 1; step <= 10; ++step) log.step({.step = step});
  log.finish();
  EXPECT_EQ(failing, 2);
  EXPECT_EQ(healthy, 10);
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(captured.lines(), 1u) << captured.text();
  EXPECT_NE(captured.text().find("a counter: no space left"), std::string::npos) << captured.text();
}

TEST(MetricsLog, AFullDiskAtOpeningDoesNotStopTheRun) {
  const CapturedLog captured;
  const testing::TempDir dir;
  std::filesystem::create_symlink("/dev/full", dir / run_files::kMetrics);
  testing::write_file(dir / "tensorboard", "a file where the folder should be");
  MetricsLog log({.folder = dir.path(), .console = std::nullopt});
  log.step({.step = 1});
  log.step({.step = 2});
  log.finish();
  EXPECT_EQ(log.size(), 0u);
  EXPECT_EQ(captured.lines(), 2u) << captured.text();
}

TEST(MetricsLog, ARestartedRunContinuesItsFiles) {
  const testing::TempDir dir;
  const CapturedLog captured;
  MetricsLogOptions options{.folder = dir.path(), .console = std::nullopt, .config = "{}"};
  {
    MetricsLog log(options);
    for (int step = 1; step <= 7; ++step) log.step({.step = step});
    // No finish(): the process was killed.
  }
  options.resume_step = 5;
  MetricsLog log(options);
  for (int step = 6; step <= 8; ++step) log.step({.step = step});
  log.evaluation({.step = 8, .name = "validation", .values = {{"loss", 1.0}}});
  log.sample({.step = 8, .prompt = "p", .text = "t"});
  log.finish();
  std::vector<std::int64_t> steps;
  read_json_lines(dir / run_files::kMetrics, [&](const Json&, std::int64_t step) { steps.push_back(step); });
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  const std::filesystem::directory_iterator events(dir / run_files::kTensorBoardFolder);
  EXPECT_EQ(std::distance(events, {}), 2);
}

TEST(MetricsLog, ARollbackTakesBackWhatItWillRepeat) {
  const testing::TempDir dir;
  const CapturedLog captured;
  MetricsLog log({.folder = dir.path(), .console = std::nullopt});
  for (int step = 1; step <= 7; ++step) log.step({.step = step, .loss = 1});
  log.evaluation({.step = 4, .name = "validation"});
  log.evaluation({.step = 6, .name = "validation"});
  for (const int step : {1, 3, 6}) log.health({.step = step});
  log.rewind(4);
  log.step({.step = 5, .loss = 2});
  log.finish();
  std::vector<std::int64_t> steps;
  double last_loss = 0;
  read_json_lines(dir / run_files::kMetrics, [&](const Json& record, std::int64_t step) {
    steps.push_back(step);
    last_loss = record.at("loss").as_double();
  });
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(last_loss, 2);
  std::vector<std::int64_t> health;
  read_json_lines(dir / run_files::kHealth, [&](const Json& record, std::int64_t step) {
    health.push_back(step);
    EXPECT_GT(record.at("time").as_double(), 1.6e9);
  });
  EXPECT_EQ(health, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(Json::parse(testing::read_file(dir / run_files::kEvaluations)).at("step").as_int(), 4);
  EXPECT_EQ(log.size(), 2u);
}

TEST(MetricsLog, AnEmptyLogTakesEverything) {
  MetricsLog log;
  log.step({});
  log.progress({});
  log.finish();
  EXPECT_EQ(log.size(), 0u);
}

using Clock = StepTimer::Clock;

struct FakeTime {
  Clock::time_point now{};
  Clock::time_point after(double seconds) {
    return now += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
};

void run_step(StepTimer& timer, FakeTime& time, double data, double compute) {
  timer.begin_step(time.now);
  timer.batch_ready(time.after(data));
  timer.end_step(1000, 2e12, time.after(compute));
}

TEST(StepTimer, RatesAreOverTheStepsSinceTheLastRecord) {
  FakeTime time;
  StepTimer timer(100, 200, time.now);
  StepMetrics metrics;
  timer.fill(metrics);
  EXPECT_EQ(metrics.tokens_per_second, 0);
  EXPECT_FALSE(metrics.eta_seconds);
  run_step(timer, time, 1.0, 9.0);  // the slow first step
  timer.fill(metrics);
  EXPECT_DOUBLE_EQ(metrics.step_seconds, 10.0);
  EXPECT_DOUBLE_EQ(*metrics.eta_seconds, 99 * 10.0);
  for (int i = 0; i < 4; ++i) run_step(timer, time, 0.1, 0.4);
  timer.fill(metrics, 8e12);
  EXPECT_EQ(metrics.step, 105);
  EXPECT_EQ(metrics.total_steps, 200);
  EXPECT_NEAR(metrics.tokens_per_second, 2000, 1e-6);
  EXPECT_NEAR(metrics.step_seconds, 0.5, 1e-9);
  EXPECT_NEAR(metrics.data_share, 0.2, 1e-9);
  EXPECT_NEAR(*metrics.tflops, 4.0, 1e-9);
  EXPECT_NEAR(*metrics.mfu, 0.5, 1e-9);
  EXPECT_NEAR(*metrics.eta_seconds, 95 * 0.5, 1e-6) << "the first step counts no more";
}

// Progress bar between records.
TEST(StepTimer, TheNewestStepHasItsRateAtOnce) {
  FakeTime time;
  StepTimer timer(0, 200, time.now);
  EXPECT_EQ(timer.last_tokens_per_second(), 0);
  run_step(timer, time, 0, 0.5);
  EXPECT_NEAR(timer.last_tokens_per_second(), 2000, 1e-6);
  StepMetrics metrics;
  timer.fill(metrics);
  EXPECT_NEAR(timer.last_tokens_per_second(), 2000, 1e-6);
  run_step(timer, time, 0, 0.25);
  EXPECT_NEAR(timer.last_tokens_per_second(), 4000, 1e-6);
}

TEST(StepTimer, TimeBetweenStepsCountsForTheEtaOnly) {
  FakeTime time;
  StepTimer timer(0, 10, time.now);
  run_step(timer, time, 0, 1.0);
  run_step(timer, time, 0, 1.0);
  time.after(2.0);  // a checkpoint
  run_step(timer, time, 0, 1.0);
  StepMetrics metrics;
  timer.fill(metrics);
  EXPECT_NEAR(metrics.step_seconds, 1.0, 1e-9);
  EXPECT_NEAR(*metrics.eta_seconds, 7 * 2.0, 1e-9);
}

TEST(StepTimer, WithoutFlopsOrPeakNothingIsClaimed) {
  FakeTime time;
  StepTimer timer(0, 0, time.now);
  timer.begin_step(time.now);
  timer.end_step(10, 0, time.after(1));
  StepMetrics metrics;
  metrics.mfu = 0.9;
  timer.fill(metrics, 1e12);
  EXPECT_FALSE(metrics.tflops);
  EXPECT_FALSE(metrics.mfu);
  EXPECT_FALSE(metrics.eta_seconds);
  run_step(timer, time, 0, 1);
  timer.fill(metrics);
  EXPECT_TRUE(metrics.tflops);
  EXPECT_FALSE(metrics.mfu);
}

}  // namespace
}  // namespace quench
