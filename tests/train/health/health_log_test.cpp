#include "train/metrics/health_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops/quantize/quantize.h"
#include "tests/recipes/float8_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using recipes::HealthRecorder;
using recipes::LayerOperand;
using recipes::OperandHealth;
using testing::CapturedLog;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::random_matrix;

// Codes under a scale `factor` times the one that fits.
QuantTensor codes(const Tensor& x, float factor = 1) {
  const Tensor scale = float8_scale(amax(x, Granularity::tensor), ElementFormat::e4m3, false);
  *scale.data<float>() *= factor;
  return cast_float8(x, scale, ElementFormat::e4m3, Granularity::tensor);
}

OperandHealth measured(const Tensor& x, const QuantTensor& q) {
  HealthRecorder recorder;
  (void)recorder.add_layer("model.layers.3.mlp.down_proj");
  recorder.arm();
  recorder.record(0, LayerOperand::input, x, q, x.numel());
  return recorder.collect().at(0);
}

std::vector<HealthFault> faults(const OperandHealth& health) {
  std::vector<HealthFault> result;
  for (const HealthFinding& finding : find_faults({&health, 1})) result.push_back(finding.fault);
  return result;
}

TEST(HealthFaults, DenseOperandsAreHealthyAtEveryScaleOfTheirValues) {
  for (const float size : {1e-8f, 1.0f, 1e10f, 1e30f}) {
    const Tensor x = random_matrix(64, 512, 1, size, DType::f32);
    EXPECT_TRUE(faults(measured(x, codes(x))).empty()) << size;
  }
  const Tensor zeros = Tensor::zeros({16, 32}, DType::f32);
  EXPECT_TRUE(faults(measured(zeros, codes(zeros))).empty());
}

// Significands near 1 are what rounds worst.
TEST(HealthFaults, TheBoundIsBelowEveryDenseDistribution) {
  const Tensor x = random_matrix(64, 512, 2, 1.0f, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 1.0f + 0.25f * std::abs(std::remainder(x.data<float>()[i], 1.0f));
  x.data<float>()[0] = 1.75f;  // the scale is a power of two
  const OperandHealth health = measured(x, codes(x));
  EXPECT_LT(health.error.sqnr(), recipes::dense_sqnr(ElementFormat::e4m3) - 1);
  EXPECT_TRUE(faults(health).empty()) << health.error.sqnr();
}

TEST(HealthFaults, AScaleThatIsTooLargeSaturates) {
  const Tensor x = random_matrix(64, 512, 3, 1.0f, DType::f32);
  const OperandHealth health = measured(x, codes(x, 4));
  EXPECT_THAT(faults(health), ::testing::Contains(HealthFault::saturation));
  const std::string text = describe({HealthFault::saturation, &health});
  EXPECT_THAT(text, HasSubstr("input of model.layers.3.mlp.down_proj: "));
  EXPECT_THAT(text, HasSubstr("% of the elements are clipped to the largest e4m3 value"));
  EXPECT_THAT(text, HasSubstr("add \"model.layers.3.mlp.down_proj\" to recipe.filter.exclude"));
}

TEST(HealthFaults, AFewClippedElementsAreNoFault) {
  OperandHealth health{.layer = "x", .elements = 3200};
  health.error = {.signal = 1e4, .noise = 1, .saturated = 3, .underflows = 0, .most = 1};
  EXPECT_TRUE(faults(health).empty());
  health.error.saturated = 4;
  EXPECT_EQ(faults(health), std::vector{HealthFault::saturation});
}

// Small tensors whose largest magnitude stands in them several times, under one scale that rounding puts too high.
TEST(HealthFaults, ElementsThatShareTheLargestMagnitudeAreHealthy) {
  const Tensor x = random_matrix(48, 32, 6, 1.0f, DType::f32);
  for (int i = 0; i < 200; ++i) {
    const float most = static_cast<float>(20 + i) / 7;
    for (std::int64_t at = 0; at < x.numel(); at += 100) x.data<float>()[at] = at % 200 == 0 ? most : -most;
    EXPECT_TRUE(faults(measured(x, codes(x))).empty()) << most;
  }
}

// Rounding at random has twice the noise of rounding to nearest: by the bound of that, significands around the middle
// of the first step after 1 would be at fault.
TEST(HealthFaults, StochasticRoundingIsMeasuredAgainstItsOwnNoise) {
  const Tensor x = random_matrix(64, 512, 2, 1.0f, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 1.0625f + 0.08f * std::remainder(x.data<float>()[i], 1.0f);
  x.data<float>()[0] = 1.75f;  // the scale is a power of two
  const QuantTensor q = quantize_float8(x, {.rounding = {RandomKey{1, 2, 3}}});
  HealthRecorder recorder;
  (void)recorder.add_layer("layer");
  recorder.arm();
  recorder.record(0, LayerOperand::output_gradient, x, q, x.numel(), true);
  const OperandHealth health = recorder.collect().at(0);
  EXPECT_TRUE(health.stochastic);
  EXPECT_TRUE(faults(health).empty()) << health.error.sqnr();
  OperandHealth as_nearest = health;
  as_nearest.stochastic = false;
  EXPECT_EQ(faults(as_nearest), std::vector{HealthFault::noise}) << health.error.sqnr();
}

TEST(HealthFaults, AScaleThatIsTooSmallDrownsTheSignal) {
  const Tensor x = random_matrix(64, 512, 4, 1.0f, DType::f32);
  const OperandHealth health = measured(x, codes(x, 0x1p-16f));
  EXPECT_EQ(faults(health), (std::vector{HealthFault::underflow, HealthFault::noise}));
  const std::string text = describe({HealthFault::noise, &health});
  EXPECT_THAT(text, HasSubstr("dB in e4m3, where dense values have 32.2"));
  EXPECT_THAT(text, HasSubstr("recipe.filter.exclude"));
}

// One large element takes the range of the others: the ratio of the whole hides it, the share of zeros does not.
TEST(HealthFaults, AnOutlierIsFoundByWhatItPushesToZero) {
  const Tensor x = random_matrix(64, 512, 5, 1.0f, DType::f32);
  for (const auto& [outlier, bad] : {std::pair{1e3f, false}, {1e4f, false}, {1e5f, true}, {1e7f, true}}) {
    x.data<float>()[77] = outlier;
    const OperandHealth health = measured(x, codes(x));
    EXPECT_GT(health.error.sqnr(), recipes::dense_sqnr(ElementFormat::e4m3)) << outlier;
    EXPECT_EQ(faults(health), bad ? std::vector{HealthFault::underflow} : std::vector<HealthFault>{}) << outlier;
  }
}

TEST(HealthFaults, NonFiniteOperandsComeFirstInOrderOfTheStep) {
  std::vector<OperandHealth> step(3);
  step[0] = {.layer = "late", .elements = 10, .order = 2};
  step[0].error.most = std::numeric_limits<double>::infinity();
  step[1] = {.layer = "poor", .elements = 10, .order = 0};
  step[1].error = {.signal = 1, .noise = 1, .saturated = 0, .underflows = 0, .most = 1};
  step[2] = {.layer = "early", .elements = 10, .order = 1};
  step[2].error.most = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> names;
  for (const HealthFinding& finding : find_faults(step)) names.push_back(finding.operand->layer);
  EXPECT_EQ(names, (std::vector<std::string>{"early", "late", "poor"}));
}

class HealthLogTest : public ::testing::Test {
 protected:
  class Sink final : public MetricsSink {
   public:
    explicit Sink(std::vector<std::int64_t>& steps) : steps_(steps) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "a list"; }
    void step(const StepMetrics&) override {}
    void evaluation(const EvaluationMetrics&) override {}
    void sample(const SampleRecord&) override {}
    void health(const HealthMetrics& metrics) override { steps_.push_back(metrics.step); }
    void rewind(std::int64_t) override {}

   private:
    std::vector<std::int64_t>& steps_;
  };

  HealthLogTest() { metrics_.add(std::make_unique<Sink>(steps_)); }
  void record(const Tensor& x, float factor = 1) {
    recorder_->record(recorder_->add_layer("layer"), LayerOperand::weight, x, codes(x, factor), x.numel());
  }

  const Tensor x_ = random_matrix(16, 64, 6, 1.0f, DType::f32);
  CapturedLog captured_;
  std::vector<std::int64_t> steps_;
  MetricsLog metrics_;
  std::shared_ptr<HealthRecorder> recorder_ = std::make_shared<HealthRecorder>();
};

TEST_F(HealthLogTest, MeasuresTheFirstStepAndEveryNth) {
  HealthLog log(recorder_, 3);
  for (std::int64_t step = 1; step <= 7; ++step) {
    log.begin_step(step);
    record(x_);
    log.end_step(step, metrics_);
  }
  EXPECT_EQ(steps_, (std::vector<std::int64_t>{1, 3, 6}));
  EXPECT_EQ(captured_.text(), "");
}

TEST_F(HealthLogTest, OffMeansOff) {
  HealthLog off(recorder_, 0), none(nullptr, 1);
  for (HealthLog* log : {&off, &none}) {
    log->begin_step(1);
    record(x_);
    log->end_step(1, metrics_);
    EXPECT_EQ(log->first_nonfinite(1, metrics_, [] { FAIL() << "a step was repeated for nothing"; }), "");
  }
  EXPECT_TRUE(steps_.empty());
  // Nor is a step repeated for a recipe without layers to measure.
  HealthLog idle(std::make_shared<HealthRecorder>(), 1);
  idle.begin_step(1);
  idle.end_step(1, metrics_);
  EXPECT_EQ(idle.first_nonfinite(1, metrics_, [] { FAIL() << "a step was repeated for nothing"; }), "");
}

TEST_F(HealthLogTest, AFaultIsReportedOnce) {
  HealthLog log(recorder_, 1);
  for (std::int64_t step = 1; step <= 5; ++step) {
    log.begin_step(step);
    record(x_, step >= 2 ? 4.0f : 1.0f);
    log.end_step(step, metrics_);
  }
  // It saturates, and what saturates is noise.
  EXPECT_EQ(captured_.lines(), 2u) << captured_.text();
  EXPECT_THAT(captured_.text(), HasSubstr("step 2: weight of layer: "));
  EXPECT_THAT(captured_.text(), Not(HasSubstr("step 3")));
}

TEST_F(HealthLogTest, ManyFaultsAreAFewLines) {
  HealthLog log(recorder_, 1);
  log.begin_step(1);
  for (int i = 0; i < 30; ++i) (void)recorder_->add_layer("layer" + std::to_string(i));
  for (std::size_t i = 0; i < 30; ++i) recorder_->record(i, LayerOperand::weight, x_, codes(x_, 0x1p-16f), x_.numel());
  log.end_step(1, metrics_);
  EXPECT_EQ(captured_.lines(), 9u) << captured_.text();
}

TEST_F(HealthLogTest, NamesTheFirstNonFiniteOperand) {
  HealthLog log(recorder_, 4);
  const Tensor bad = x_.clone();
  bad.data<float>()[5] = std::numeric_limits<float>::infinity();
  int repeated = 0;
  const auto again = [&] {
    ++repeated;
    record(bad);
  };
  // Measured anyway.
  log.begin_step(4);
  record(bad);
  log.end_step(4, metrics_);
  EXPECT_EQ(log.first_nonfinite(4, metrics_, again), "weight of layer");
  EXPECT_EQ(repeated, 0);
  EXPECT_THAT(captured_.text(), HasSubstr("step 4: weight of layer is not finite"));
  // Not due: the step is repeated, recorded, and reported as any other.
  log.begin_step(5);
  record(bad);
  log.end_step(5, metrics_);
  EXPECT_EQ(log.first_nonfinite(5, metrics_, again), "weight of layer");
  EXPECT_EQ(repeated, 1);
  EXPECT_EQ(steps_, (std::vector<std::int64_t>{4, 5}));
  // The operands are not at fault.
  log.begin_step(6);
  log.end_step(6, metrics_);
  EXPECT_EQ(log.first_nonfinite(6, metrics_, [&] { record(x_); }), "");
}

}  // namespace
}  // namespace quench
