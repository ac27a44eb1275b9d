// Grids of two, three and four levels against their definition.

#include <cmath>
#include <limits>

#include "core/ops/quantize/quantize_int.h"
#include "core/ops/quantize/scale_gradient.h"
#include "core/ops/quantize/weight_grids.h"
#include "tests/core/ops/op_testing.h"
#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::floats;
using ::testing::HasSubstr;
using testing::of;
using testing::random_tensor;

constexpr IntMapping kGrids[] = {IntMapping::binary, IntMapping::ternary, IntMapping::stretched};

Tensor normal(const Shape& shape, std::uint64_t seed) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = 0.3f * random_normal(RandomKey{seed, 0, 0}, static_cast<std::uint64_t>(i));
  return x;
}

struct Fake {
  std::vector<float> values;
  std::vector<int> passes;  // gradients
};

Fake faked(const Tensor& x, const IntQuantOptions& options, const Tensor& scales = {}) {
  const Tensor out = Tensor::empty_like(x), mask = Tensor::empty(range_mask_shape(x.shape()), DType::u8);
  fake_quantize_int({.x = x, .out = out, .mask = mask, .scales = scales, .zero_points = {}, .options = options});
  Fake made{floats(out), {}};
  for (std::int64_t row = 0; row < x.size(0); ++row)
    for (std::int64_t i = 0; i < x.size(1); ++i)
      made.passes.push_back(mask.data<std::uint8_t>()[row * mask.size(1) + i / 8] >> (i % 8) & 1);
  return made;
}

TEST(FewLevels, BinaryIsTheSignTimesTheMeanMagnitude) {
  const Tensor x = of({1, 6}, {0.5f, -0.25f, 0.0f, -0.0f, -3.0f, 2.25f});
  const Fake made = faked(x, {.mapping = IntMapping::binary});
  EXPECT_THAT(made.values, ElementsAre(1.0f, -1.0f, 1.0f, 1.0f, -1.0f, 1.0f));
  EXPECT_THAT(made.passes, ElementsAre(1, 1, 1, 1, 0, 0)) << "of magnitudes up to the scale";
}

TEST(FewLevels, TernaryIsTheNearestOfThreeAndClipsBeyondOneAndAHalfSteps) {
  const Tensor x = of({1, 6}, {3.0f, -0.99f, 1.01f, -2.0f, 0.0f, 1.5f});
  const IntQuantOptions options{.mapping = IntMapping::ternary};
  Fake made = faked(x, options);
  EXPECT_THAT(made.values, ElementsAre(2.0f, 0.0f, 2.0f, -2.0f, 0.0f, 2.0f)) << "scale 2/3 of 3";
  EXPECT_THAT(made.passes, ElementsAre(0, 1, 1, 1, 1, 1)) << "1.5 steps round to 2";
  made = faked(x, options, of({1, 1}, {1.0f}));
  EXPECT_THAT(made.values, ElementsAre(1.0f, -1.0f, 1.0f, -1.0f, 0.0f, 1.0f));
  EXPECT_THAT(made.passes, ElementsAre(0, 1, 1, 0, 1, 0));
}

// a * (floor(clip(w / a, -1, 1 - eps) * 2) + 0.5) / 2 with a = 4 scale.
TEST(FewLevels, StretchedHasFourLevelsAroundZero) {
  const Tensor x = of({1, 8}, {4.0f, -4.0f, 1.99f, 2.0f, -0.01f, 0.0f, -2.0f, -2.01f});
  const IntQuantOptions options{.mapping = IntMapping::stretched};
  Fake made = faked(x, options);
  EXPECT_THAT(made.values, ElementsAre(3.0f, -3.0f, 1.0f, 3.0f, -1.0f, 1.0f, -1.0f, -3.0f)) << "a = 4, scale 1";
  EXPECT_THAT(made.passes, ElementsAre(0, 1, 1, 1, 1, 1, 1, 1));
  made = faked(x, options, of({1, 1}, {0.5f}));
  EXPECT_THAT(made.values, ElementsAre(1.5f, -1.5f, 1.5f, 1.5f, -0.5f, 0.5f, -1.5f, -1.5f));
  EXPECT_THAT(made.passes, ElementsAre(0, 0, 1, 0, 1, 1, 1, 0));
}

float by_definition(IntMapping mapping, float w, float scale) {
  const double s = scale, x = w;
  if (mapping == IntMapping::binary) return x < 0 ? -scale : scale;
  if (mapping == IntMapping::ternary) return static_cast<float>(std::clamp(std::nearbyint(x / s), -1.0, 1.0) * s);
  const double a = 4 * s, clipped = std::clamp(x / a, -1.0, std::nextafter(1.0, 0.0));
  return static_cast<float>(a * (std::floor(clipped * 2) + 0.5) / 2);
}

TEST(FewLevels, ValuesAreThoseOfTheDefinitionInEveryGroup) {
  for (const IntMapping mapping : kGrids)
    for (const std::int64_t group : {0, 5, 24, 40, 120}) {
      const Tensor x = random_tensor({7, 120});
      const IntQuantOptions options{.mapping = mapping, .group_size = group};
      const IntQuantized q = quantize_int(x, options);
      const Fake made = faked(x, options);
      EXPECT_EQ(floats(dequantize_int(q.codes, q.scales, DType::f32, options)), made.values);
      const std::int64_t size = group > 0 ? group : 120;
      const IntRange range = int_range(4, mapping);
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float scale = q.scales.scales.data<float>()[i / size], w = x.data<float>()[i];
        const int code = q.codes.data<std::int8_t>()[i];
        EXPECT_EQ(made.values[at], by_definition(mapping, w, scale)) << i;
        EXPECT_TRUE(code >= range.lowest && code <= range.highest && (mapping == IntMapping::ternary || code % 2 != 0));
        const float bound = mapping == IntMapping::binary    ? scale
                            : mapping == IntMapping::ternary ? 1.5f * scale
                                                             : 4 * scale;
        if (std::abs(std::abs(w) - bound) < 1e-5f * bound) continue;
        EXPECT_EQ(made.passes[at] != 0, std::abs(w) < bound) << i;
      }
    }
}

TEST(FewLevels, Bf16ValuesAreScalesOfBf16) {
  const Tensor x = random_tensor<bfloat16>({4, 64});
  for (const IntMapping mapping : kGrids) {
    const IntQuantOptions options{.mapping = mapping, .group_size = 32};
    for (const float scale : floats(int_scales(x, options).scales)) EXPECT_EQ(scale, float(bfloat16(scale)));
    const IntQuantOptions stored{.mapping = mapping, .group_size = 32, .scale_dtype = DType::f16};
    for (const float scale : floats(int_scales(x, stored).scales)) EXPECT_EQ(scale, float(float16(scale)));
  }
}

TEST(FewLevels, MeansOfMagnitudesDoNotDependOnTheOrder) {
  const Tensor x = random_tensor({3, 1000}), reversed = Tensor::empty_like(x);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    reversed.data<float>()[i / 1000 * 1000 + 999 - i % 1000] = -x.data<float>()[i];
  const IntQuantOptions options{.mapping = IntMapping::binary};
  const std::vector<float> scales = floats(int_scales(x, options).scales);
  EXPECT_EQ(scales, floats(int_scales(reversed, options).scales));
  for (std::int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < 1000; ++i) sum += std::abs(static_cast<double>(x.data<float>()[row * 1000 + i]));
    EXPECT_FLOAT_EQ(scales[static_cast<std::size_t>(row)], static_cast<float>(sum / 1000));
  }
  for (const float size : {1e-37f, 1e-20f, 1e30f, 3e38f}) {
    const Tensor equal = of({1, 4}, {size, -size, size, size});
    const float scale = int_scales(equal, options).scales.data<float>()[0];
    EXPECT_NEAR(scale / size, 1.0, size < 1e-30f ? 1.0 : 1e-6) << size;
  }
}

TEST(FewLevels, WhatIsNotFiniteMakesItsGroupNan) {
  for (const IntMapping mapping : kGrids)
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      const Tensor x = random_tensor({1, 64});
      x.data<float>()[21] = bad;
      const Fake made = faked(x, {.mapping = mapping, .group_size = 32});
      for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(made.values[i]), i < 32) << i << " of " << bad;
      const Fake given = faked(x, {.mapping = mapping, .group_size = 32}, of({1, 2}, {1.0f, 1.0f}));
      EXPECT_EQ(std::isnan(given.values[21]), std::isnan(bad));
    }
}

std::vector<float> gradient(const Tensor& w, const Tensor& dvalue, const Tensor& scales,
                            const IntQuantOptions& options) {
  const Tensor out = Tensor::empty(scales.shape(), DType::f32);
  scale_gradient({.w = w, .dvalue = dvalue, .scales = scales, .out = out, .options = options});
  return floats(out);
}

TEST(FewLevels, SlopesOfTheScaleAreThoseOfTheFormula) {
  const Tensor ones = of({1, 1}, {1.0f}), half = of({1, 1}, {0.5f});
  const auto slope = [&](IntMapping mapping, float w) {
    return gradient(of({1, 1}, {w}), ones, half, {.mapping = mapping}).front();
  };
  EXPECT_EQ(slope(IntMapping::binary, 0.1f), 1.0f);
  EXPECT_EQ(slope(IntMapping::binary, -7.0f), -1.0f);
  EXPECT_EQ(slope(IntMapping::ternary, 0.125f), -0.25f) << "0 - 0.25";
  EXPECT_EQ(slope(IntMapping::ternary, -0.375f), -0.25f) << "-1 + 0.75";
  EXPECT_EQ(slope(IntMapping::ternary, 5.0f), 1.0f);
  EXPECT_EQ(slope(IntMapping::stretched, 0.25f), 0.5f) << "1 - 0.5";
  EXPECT_EQ(slope(IntMapping::stretched, -1.75f), 0.5f) << "-3 + 3.5";
  EXPECT_EQ(slope(IntMapping::stretched, -9.0f), -3.0f);
  EXPECT_FLOAT_EQ(scale_gradient_factor(64, {.bits = 3, .mapping = IntMapping::stretched}), 1 / std::sqrt(192.0f));
  EXPECT_FLOAT_EQ(scale_gradient_factor(64, {.bits = 2, .mapping = IntMapping::binary}), 0.125f);
  EXPECT_FLOAT_EQ(scale_gradient_factor(64, {.bits = 2, .mapping = IntMapping::ternary}), 0.125f);
}

// Away from steps the values are codes times the scale; the straight-through estimate adds -w / s where it passes.
TEST(FewLevels, SlopesOfTheScaleAreDifferencesOfValues) {
  for (const IntMapping mapping : kGrids) {
    const Tensor w = normal({3, 16}, 5), dvalue = normal({3, 16}, 6);
    const IntQuantOptions options{.mapping = mapping, .group_size = 8};
    const Tensor scales = of({3, 2}, {0.11f, 0.2f, 0.3f, 0.15f, 0.25f, 0.4f});
    const std::vector<float> found = gradient(w, dvalue, scales, options);
    for (std::int64_t g = 0; g < 6; ++g) {
      const float scale = scales.data<float>()[g], step = 1e-4f * scale;
      double expected = 0;
      const auto values_at = [&](float at) {
        const Tensor moved = scales.clone();
        moved.data<float>()[g] = at;
        return faked(w, options, moved).values;
      };
      const std::vector<float> above = values_at(scale + step), below = values_at(scale - step);
      const std::vector<int> passes = faked(w, options, scales).passes;
      for (std::int64_t i = 8 * g; i < 8 * g + 8; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double difference = (static_cast<double>(above[at]) - below[at]) / (2.0 * step);
        ASSERT_LT(std::abs(difference), 3.1) << "a step lies between";
        const bool straight = mapping != IntMapping::binary && passes[at] != 0;
        expected += (difference - (straight ? w.data<float>()[i] / scale : 0.0f)) * dvalue.data<float>()[i];
      }
      EXPECT_NEAR(found[static_cast<std::size_t>(g)], expected, 5e-3) << grid_name(mapping) << " group " << g;
    }
  }
}

TEST(FewLevels, GridsHaveNames) {
  EXPECT_EQ(require_weight_grid("seq", "--weight-grid").mapping, IntMapping::stretched);
  EXPECT_EQ(grid_name(IntMapping::ternary), "ternary");
  try {
    (void)require_weight_grid("quaternary", "recipe.weight_grid");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(),
                HasSubstr("recipe.weight_grid 'quaternary' is unknown; known: int, binary, ternary, seq"));
  }
}

}  // namespace
}  // namespace quench
