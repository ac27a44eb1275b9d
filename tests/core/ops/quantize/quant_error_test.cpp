#include "core/ops/quantize/quant_error.h"

#include <gmock/gmock.h>

#include "tests/core/ops/quantize/quant_error_cases.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

QuantError error_of(const Tensor& x, const QuantTensor& q) {
  const Tensor out = Tensor::empty({QuantError::kFields}, DType::f64);
  fill(out, -1.0);
  quant_error({x, q, out});
  return QuantError::read(out);
}

TEST(QuantError, EveryFormatAgainstTheDefinition) {
  Generator random(1);
  double saturated = 0, underflows = 0;
  for (const QuantErrorCase& c : quant_error_cases()) {
    SCOPED_TRACE(describe(c));
    const auto [x, q] = quant_error_input(random, c);
    const QuantError expected = quant_error_reference(x, q);
    expect_same_error(error_of(x, q), expected);
    saturated += expected.saturated;
    underflows += expected.underflows;
  }
  EXPECT_GT(saturated, 0);  // the inputs show what they are for
  EXPECT_GT(underflows, 0);
}

TEST(QuantError, CountsByHand) {
  const Tensor x = Tensor::from_values<float>({2, 3}, std::vector<float>{448, -500, 0, 0.0001f, -2, 3});
  const Tensor scale = Tensor::from_values<float>({}, std::vector<float>{1});
  const QuantError error = error_of(x, cast_float8(x, scale, ElementFormat::e4m3, Granularity::tensor));
  EXPECT_EQ(error.saturated, 1);
  EXPECT_EQ(error.underflows, 1);
  EXPECT_EQ(error.most, 500);
  EXPECT_NEAR(error.noise, 52.0 * 52.0 + 1e-8, 1e-9);
  EXPECT_NEAR(error.sqnr(), 10 * std::log10((448.0 * 448 + 500.0 * 500 + 13) / (52.0 * 52.0)), 1e-6);
}

// Several elements that share the largest magnitude of their scale are rounded, not clipped, on whichever side of the
// format's largest value x * scale falls.
TEST(QuantError, TheLargestElementsOfADynamicScaleAreNotSaturated) {
  Generator random(6);
  int above = 0;
  for (int i = 0; i < 200; ++i)
    for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2}) {
      const Tensor x = random.normal({4, 8}, DType::f32);
      const auto most = static_cast<float>(random.between(3, 1000)) / 7;
      for (const std::int64_t at : {0, 9, 31}) set_element(x, at, at == 9 ? -most : most);
      for (std::int64_t at = 0; at < 32; ++at) set_element(x, at, std::clamp<double>(get_element(x, at), -most, most));
      const QuantTensor q = quantize_float8(x, {.element = element});
      above += most * *q.scales().data<float>() > (element == ElementFormat::e4m3 ? 448.0f : 57344.0f) ? 1 : 0;
      EXPECT_EQ(error_of(x, q).saturated, 0) << most;
    }
  EXPECT_GT(above, 10);
}

TEST(QuantError, ClippedIsWhatRoundsBeyondTheLargestValue) {
  EXPECT_FALSE(is_clipped<E4m3>(448.0f));
  EXPECT_FALSE(is_clipped<E4m3>(-464.0f));
  EXPECT_TRUE(is_clipped<E4m3>(std::nextafter(464.0f, 500.0f)));
  EXPECT_FALSE(is_clipped<E5m2>(57344.0f));
  EXPECT_FALSE(is_clipped<E5m2>(std::nextafter(61440.0f, 0.0f)));
  EXPECT_TRUE(is_clipped<E5m2>(-61440.0f));
  EXPECT_TRUE(is_clipped<E5m2>(-HUGE_VALF));
  EXPECT_FALSE(is_clipped<E4m3>(std::nanf("")));
  EXPECT_FALSE(is_clipped<E4m3>(0.0f));
}

TEST(QuantError, NothingLostIsInfinitelyGood) {
  const Tensor x = Tensor::from_values<float>({1, 3}, std::vector<float>{1, -2, 0});
  const Tensor scale = Tensor::from_values<float>({}, std::vector<float>{4});
  const QuantError error = error_of(x, cast_float8(x, scale, ElementFormat::e5m2, Granularity::tensor));
  EXPECT_EQ(error.noise, 0);
  EXPECT_EQ(error.signal, 5);
  EXPECT_EQ(error.sqnr(), HUGE_VAL);
}

TEST(QuantError, NanAndInfinity) {
  for (const double special : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
      Generator random(3);
      const Tensor x = random.normal({4, 40}, DType::bf16);
      set_element(x, 50, special);
      const QuantTensor q = quantize_float8(x, {.granularity = granularity});
      expect_same_error(error_of(x, q), quant_error_reference(x, q));
      EXPECT_FALSE(std::isfinite(error_of(x, q).signal));
    }
}

TEST(QuantError, EmptyIsZero) {
  for (const Shape& shape : {Shape{0, 8}, Shape{8, 0}}) {
    const Tensor x = Tensor::empty(shape, DType::f32);
    expect_same_error(error_of(x, quantize_float8(x, {.granularity = Granularity::tensor})), QuantError());
  }
}

TEST(QuantError, DoesNotDependOnThreads) {
  Generator random(4);
  const auto [x, q] = quant_error_input(random, {333, 1111, DType::f32});
  const Tensor out = Tensor::empty({QuantError::kFields}, DType::f64);
  EXPECT_TRUE(independent_of_threads({out}, [&, &x = x, &q = q] { quant_error({x, q, out}); }));
}

TEST(QuantError, RefusesWhatDoesNotFit) {
  Generator random(5);
  const Tensor x = random.normal({8, 32}, DType::f32), out = Tensor::empty({QuantError::kFields}, DType::f64);
  const QuantTensor q = quantize_float8(x, {});
  const auto expect_refused = [](const QuantErrorArgs& args, const std::string& words) {
    try {
      quant_error(args);
      ADD_FAILURE() << "no error with '" << words << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  expect_refused({random.normal({8, 32, 1}, DType::f32), q, out}, "expected f32 or bf16 of rank 2");
  expect_refused({Tensor::empty({32, 8}, DType::f32).transpose(0, 1), q, out}, "must be contiguous");
  expect_refused({x, quantize_float8(random.normal({8, 33}, DType::f32), {}), out}, "quant_error: q is [8, 33]");
  expect_refused({x, quantize_mx(x, {}), out}, "expected x f32[8, 32] on cpu as e4m3, e5m2 or int8");
  expect_refused({x, QuantTensor(), out}, "q is undefined");
  expect_refused({x, q, Tensor::empty({4}, DType::f64)}, "out is f64[4] on cpu");
  expect_refused({x, q, Tensor::empty({5}, DType::f32)}, "out is f32[5] on cpu");
  expect_refused({x, q, Tensor::empty({5}, DType::f64, Device{DeviceType::meta, 0})}, "tensors on cpu and meta");
}

}  // namespace
}  // namespace quench::testing
