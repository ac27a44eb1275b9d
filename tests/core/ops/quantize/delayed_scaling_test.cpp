#include "core/ops/quantize/delayed_scaling.h"

#include <gtest/gtest.h>

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/quantize/delayed_scaling_cases.h"

namespace quench::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNotANumber = std::numeric_limits<float>::quiet_NaN();

// One operand of e4m3.
struct Operand {
  explicit Operand(std::int64_t steps, int margin = 0)
      : args{.recorded = Tensor::zeros({1}, DType::f32),
             .history = Tensor::zeros({1, steps}, DType::f32),
             .largest = Tensor::from_values<float>({1}, std::vector<float>{448.0f}),
             .scale = Tensor::zeros({1}, DType::f32),
             .margin = margin} {}
  // The scale after a step with that amax.
  float after(float amax) {
    args.recorded.data<float>()[0] = amax;
    update_delayed_scales(args);
    EXPECT_EQ(args.recorded.data<float>()[0], 0.0f);
    return args.scale.data<float>()[0];
  }
  [[nodiscard]] std::vector<float> history() const {
    return {args.history.data<float>(), args.history.data<float>() + args.history.numel()};
  }
  DelayedScalingArgs args;
};

TEST(DelayedScaling, TheLargestAmaxOfTheWindowGivesTheScale) {
  Operand x(3);
  EXPECT_EQ(x.after(2.0f), 224.0f);
  EXPECT_EQ(x.after(7.0f), 64.0f);
  EXPECT_EQ(x.after(1.0f), 64.0f);
  EXPECT_EQ(x.after(1.0f), 64.0f);
  EXPECT_EQ(x.after(1.0f), 448.0f) << "7 has left the window";
  EXPECT_EQ(x.after(0.5f), 448.0f);
  EXPECT_EQ(x.history(), (std::vector<float>{0.5f, 1.0f, 1.0f}));
}

TEST(DelayedScaling, AWindowOfOneStepIsTheLastAmax) {
  Operand x(1);
  EXPECT_EQ(x.after(7.0f), 64.0f);
  EXPECT_EQ(x.after(1.0f), 448.0f);
}

TEST(DelayedScaling, AmaxThatIsZeroOrNotFiniteLeavesTheHistory) {
  Operand x(2);
  for (const float none : {0.0f, kNotANumber, kInfinity}) EXPECT_EQ(x.after(none), 1.0f) << "no history";
  EXPECT_EQ(x.after(7.0f), 64.0f);
  for (const float none : {0.0f, kNotANumber, -kNotANumber, kInfinity, 0.0f, kNotANumber})
    EXPECT_EQ(x.after(none), 64.0f);
  EXPECT_EQ(x.history(), (std::vector<float>{7.0f, 0.0f}));
}

TEST(DelayedScaling, TheMarginDividesByAPowerOfTwo) {
  for (const int margin : {0, 1, 5}) {
    Operand x(2, margin);
    EXPECT_EQ(x.after(7.0f), std::ldexp(64.0f, -margin));
    EXPECT_EQ(x.after(0.3f), std::ldexp(64.0f, -margin));
  }
}

TEST(DelayedScaling, ScalesMatchDynamicScaling) {
  Generator random(5);
  for (const ElementFormat element : {ElementFormat::e4m3, ElementFormat::e5m2}) {
    const Tensor x = random.normal({9, 33}, DType::bf16), most = amax(x, Granularity::tensor);
    Operand operand(4);
    operand.args.largest.data<float>()[0] = element == ElementFormat::e4m3 ? 448.0f : 57344.0f;
    EXPECT_EQ(operand.after(*most.data<float>()), *float8_scale(most, element, false).data<float>());
  }
}

TEST(DelayedScaling, OperandsAreIndependent) {
  Generator random(6);
  const DelayedScalingArgs all = delayed_scaling_case(random, 37, 5, 2);
  for (std::int64_t i = 0; i < 37; ++i) {
    Operand one(5, 2);
    one.args.history.copy_from(all.history.narrow(0, i, 1));
    one.args.largest.copy_from(all.largest.narrow(0, i, 1));
    const float expected = one.after(all.recorded.data<float>()[i]);
    DelayedScalingArgs copy = all;
    copy.recorded = all.recorded.clone();
    copy.history = all.history.clone();
    update_delayed_scales(copy);
    EXPECT_EQ(copy.scale.data<float>()[i], expected);
    EXPECT_TRUE(same_bits(copy.history.narrow(0, i, 1).clone(), one.args.history)) << i;
  }
}

TEST(DelayedScaling, RefusesWhatDoesNotFit) {
  Operand x(3);
  const auto refused = [&](const auto& change) {
    DelayedScalingArgs args = x.args;
    change(args);
    EXPECT_THROW(update_delayed_scales(args), Error);
  };
  refused([](DelayedScalingArgs& a) { a.recorded = Tensor::zeros({2}, DType::f32); });
  refused([](DelayedScalingArgs& a) { a.scale = Tensor::zeros({1}, DType::bf16); });
  refused([](DelayedScalingArgs& a) { a.largest = {}; });
  refused([](DelayedScalingArgs& a) { a.history = Tensor::zeros({1, 0}, DType::f32); });
  refused([](DelayedScalingArgs& a) { a.history = Tensor::zeros({1, 6}, DType::f32).strided({1, 3}, {6, 2}, 0); });
  refused([](DelayedScalingArgs& a) { a.margin = -1; });
}

TEST(RaiseAmax, IsTheMaximumWithTheStoredOne) {
  Generator random(7);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random.normal({70, 257}, dtype), own = amax(x, Granularity::tensor);
    const Tensor most = Tensor::zeros({}, DType::f32);
    raise_amax(x, most);
    EXPECT_TRUE(same_bits(most, own));
    raise_amax(Tensor::zeros({0, 3}, dtype), most);
    EXPECT_TRUE(same_bits(most, own));
    *most.data<float>() = 1e6f;
    raise_amax(x, most);
    EXPECT_EQ(*most.data<float>(), 1e6f);
    set_element(x, 5, -std::numeric_limits<double>::quiet_NaN());
    raise_amax(x, most);
    EXPECT_TRUE(std::isnan(*most.data<float>()));
    raise_amax(own, most);
    EXPECT_TRUE(std::isnan(*most.data<float>())) << "NaN stays";
  }
  EXPECT_THROW(raise_amax(Tensor::zeros({2}, DType::f32), Tensor::zeros({1}, DType::f32)), Error);
}

TEST(RaiseAmax, CastsRecordTheAmaxOfTheirInput) {
  Generator random(8);
  const Tensor x = random.normal({33, 48}, DType::bf16), own = amax(x, Granularity::tensor);
  const Tensor scale = Tensor::zeros({}, DType::f32), none = Tensor::zeros({}, DType::f32);
  *scale.data<float>() = 300.0f;  // the largest values saturate
  const Float8Pair wanted = cast_float8_pair(x, scale, ElementFormat::e4m3);
  for (const bool both : {false, true}) {
    const Tensor most = Tensor::zeros({}, DType::f32);
    const QuantTensor got =
        both ? cast_float8_pair(x, scale, ElementFormat::e4m3, {}, most).natural
             : cast_float8(x, scale, ElementFormat::e4m3, Granularity::tensor, Orientation::natural, {}, most);
    EXPECT_TRUE(same_bits(most, own));
    EXPECT_TRUE(same_bits(got.payload(), wanted.natural.payload()));
  }
}

}  // namespace
}  // namespace quench::testing
