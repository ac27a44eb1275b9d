#include "tests/core/ops/quantize/tuned_rounding_cases.h"

#include <cmath>

#include "core/system/check.h"

namespace quench {
namespace {

using namespace testing;

template <class Body>
void expect_refusal(std::string_view part, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// Derivatives of a loss sum(g * value) in f64, rounding taken as the identity within the range.
struct Derivatives {
  double scale = 0, zero_point = 0, magnitude = 0;
};

TEST(TunedRounding, ValuesLieOnTheGridOfTheirGroup) {
  Generator random(1);
  for (const TunedRoundingCase& c : tuned_rounding_cases()) {
    SCOPED_TRACE(describe(c));
    const TunedRoundingInput in = tuned_rounding_input(random, c);
    const Tensor out = Tensor::empty(in.rounding.w.shape(), DType::f32);
    tuned_values({in.rounding, out});
    dispatch_grid(c.grid, "test", [&]<class Element>() {
      const auto* bounds = in.rounding.bounds.data<float>();
      const auto* factors = in.rounding.factors.data<float>();
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        const std::int64_t g = i / c.group;
        const GridScale scale = GridRounding<Element>::scale(c.grid, bounds[2 * g] * factors[2 * g],
                                                             bounds[2 * g + 1] * factors[2 * g + 1]);
        const float code = out.data<float>()[i] / scale.scale;
        // Rounded again without an offset: the same value.
        const GridCode again = GridRounding<Element>(c.grid)(code, 0.0f, scale.zero_point);
        EXPECT_NEAR(again.code, code, 1e-3) << i;
        EXPECT_TRUE(again.inside) << i;
      }
    });
  }
}

TEST(TunedRounding, ValuesAreMultipliedAndRoundedOnce) {
  Generator random(2);
  const TunedRoundingInput in = tuned_rounding_input(random, tuned_rounding_cases()[2]);
  const Tensor wide = Tensor::empty(in.rounding.w.shape(), DType::f32),
               narrow = Tensor::empty(in.rounding.w.shape(), DType::bf16);
  tuned_values({in.rounding, wide});
  tuned_values({in.rounding, narrow, 0.3f});
  for (std::int64_t i = 0; i < wide.numel(); ++i)
    EXPECT_EQ(float(narrow.data<bfloat16>()[i]), float(bfloat16(wide.data<float>()[i] * 0.3f))) << i;
}

TEST(TunedRounding, ParametersMoveAgainstTheSignOfTheirDerivative) {
  Generator random(3);
  constexpr float kRate = 0.01f;
  for (const TunedRoundingCase& c : tuned_rounding_cases()) {
    SCOPED_TRACE(describe(c));
    const TunedRoundingInput in = tuned_rounding_input(random, c);
    const Tensor offsets = in.rounding.offsets.clone(), factors = in.rounding.factors.clone();
    tuned_step({in.rounding, in.gradient, kRate});
    const auto *w = in.rounding.w.data<float>(), *g = in.gradient.data<float>(), *v = offsets.data<float>(),
               *moved = in.rounding.offsets.data<float>(), *bounds = in.rounding.bounds.data<float>(),
               *before = factors.data<float>(), *after = in.rounding.factors.data<float>();
    std::int64_t inside = 0;
    dispatch_grid(c.grid, "test", [&]<class Element>() {
      for (std::int64_t group = 0; group < factors.size(0); ++group) {
        const float low = bounds[2 * group] * before[2 * group], high = bounds[2 * group + 1] * before[2 * group + 1];
        const GridScale scale = GridRounding<Element>::scale(c.grid, low, high);
        Derivatives by;
        for (std::int64_t i = group * c.group; i < (group + 1) * c.group; ++i) {
          const GridCode code = GridRounding<Element>(c.grid)(w[i] / scale.scale, v[i], scale.zero_point);
          const float sign = g[i] > 0 ? 1.0f : g[i] < 0 ? -1.0f : 0.0f;
          const float expected = code.inside ? std::clamp(v[i] - kRate * sign, -0.5f, 0.5f) : v[i];
          ASSERT_EQ(moved[i], expected) << i;
          inside += code.inside ? 1 : 0;
          const double slope = code.inside ? code.code - w[i] / scale.scale : code.code;
          by.scale += g[i] * slope;
          by.zero_point += code.inside ? 0.0 : -g[i] * static_cast<double>(scale.scale);
          by.magnitude += std::abs(g[i] * slope);
        }
        const auto expect_move = [&](std::int64_t at, double derivative, double magnitude) {
          if (std::abs(derivative) < 1e-4 * magnitude) return;  // the sign depends on the order of sums
          const float sign = derivative > 0 ? 1.0f : derivative < 0 ? -1.0f : 0.0f;
          EXPECT_EQ(after[at], std::clamp(before[at] - kRate * sign, 0.5f, 1.5f)) << at;
        };
        if (!c.grid.continuous()) {
          EXPECT_EQ(after[2 * group], before[2 * group]);
        } else if (c.grid.symmetric()) {
          expect_move(2 * group, by.scale, by.magnitude);
          EXPECT_EQ(after[2 * group], after[2 * group + 1]);
        } else {
          const double s = scale.scale, steps = (1 << c.grid.bits) - 1, tilt = low / (s * s * steps);
          expect_move(2 * group, by.scale / steps + by.zero_point * (1 / s + tilt), by.magnitude);
          expect_move(2 * group + 1, by.scale / steps + by.zero_point * tilt, by.magnitude);
        }
      }
    });
    EXPECT_GT(inside, in.rounding.w.numel() / 4);
  }
}

TEST(TunedRounding, OperandsThatDoNotFitAreRefused) {
  Generator random(4);
  const TunedRoundingCase c{{.bits = 4}, 4, 64, 32};
  const TunedRoundingInput in = tuned_rounding_input(random, c);
  const Tensor out = Tensor::empty({4, 64}, DType::f32);
  const auto refused = [&](std::string_view words, auto&& change) {
    TunedStepArgs args{in.rounding, in.gradient, 0.1f};
    change(args);
    expect_refusal(words, [&] { tuned_step(args); });
  };
  refused("tuned_step: w is", [](TunedStepArgs& a) { a.rounding.w = Tensor::empty({4, 64}, DType::bf16); });
  refused("offsets", [](TunedStepArgs& a) { a.rounding.offsets = Tensor::empty({4, 32}, DType::f32); });
  refused("groups divide the rows", [](TunedStepArgs& a) { a.rounding.bounds = Tensor::empty({6, 2}, DType::f32); });
  refused("factors", [](TunedStepArgs& a) { a.rounding.factors = Tensor::empty({4, 2}, DType::f32); });
  refused("gradient is", [](TunedStepArgs& a) { a.gradient = Tensor::empty({4, 64}, DType::bf16); });
  refused("without integer zero points",
          [](TunedStepArgs& a) { a.rounding.grid.mapping = IntMapping::float_zero_point; });
  expect_refusal("expected f32 or bf16", [&] { tuned_values({in.rounding, Tensor::empty({4, 64}, DType::f16)}); });
}

}  // namespace
}  // namespace quench
