#include "core/ops/norm.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr float kEps = 1e-5f;

double rounded(double value, DType dtype) {
  return dtype == DType::bf16 ? static_cast<double>(bfloat16(static_cast<float>(value))) : value;
}

struct NormReference {
  std::vector<double> y, rstd;
};

NormReference reference(const std::vector<double>& x, const std::vector<double>& weight, DType dtype) {
  const std::size_t width = weight.size(), rows = x.size() / width;
  NormReference result{std::vector<double>(x.size()), std::vector<double>(rows)};
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x[r * width + i] * x[r * width + i];
    result.rstd[r] = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (std::size_t i = 0; i < width; ++i)
      result.y[r * width + i] = rounded(x[r * width + i] * result.rstd[r], dtype) * weight[i];
  }
  return result;
}

const Shape kNormShapes[] = {{1, 1}, {3, 7}, {5, 16}, {40, 33}, {2, 768}, {70, 129}, {6, 3, 32}, {40, 2, 20}};

TEST(RmsNorm, MatchesTheFormulaOnStridedRows) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kNormShapes)
      for (const std::int64_t gap : {0, 5}) {
        SCOPED_TRACE(fmt::format("{}{} gap {}", to_string(dtype), shape.to_string(), gap));
        Generator random(++seed);
        const Tensor x = random.normal_view(shape, dtype, gap), weight = random.normal({shape[-1]}, dtype);
        const Tensor y = random.normal_view(shape, dtype, gap);
        Shape rows;
        for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
        const Tensor rstd = Tensor::empty(rows, DType::f32);
        const NormReference expected = reference(values(x), values(weight), dtype);
        rms_norm({.x = x, .weight = weight, .eps = kEps, .y = y, .rstd = rstd});
        // In bf16 a value next to a rounding boundary may fall to the other side: one more bf16 step.
        EXPECT_TRUE(close(y, expected.y, dtype == DType::bf16 ? 0x1.8p-7 : 1e-6, 1e-7));
        EXPECT_TRUE(close(rstd, expected.rstd, 1e-6, 0));
      }
}

TEST(RmsNorm, AddsTheResidualFirst) {
  std::uint32_t seed = 50;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool in_place : {false, true}) {
      Generator random(++seed);
      const Shape shape{9, 100};
      const Tensor x = random.normal(shape, dtype), residual = random.normal(shape, dtype);
      const Tensor weight = random.normal({100}, dtype);
      std::vector<double> sums = values(x);
      const std::vector<double> other = values(residual);
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] = dtype == DType::bf16 ? rounded(sums[i] + other[i], dtype)
                                       : static_cast<float>(static_cast<float>(sums[i]) + static_cast<float>(other[i]));
      const Tensor y = Tensor::empty(shape, dtype), rstd = Tensor::empty({9}, DType::f32);
      const Tensor sum = in_place ? residual : Tensor::empty(shape, dtype);
      rms_norm({.x = x, .residual = residual, .weight = weight, .eps = kEps, .y = y, .sum = sum, .rstd = rstd});
      EXPECT_TRUE(close(sum, sums, 0, 0));
      EXPECT_TRUE(close(y, reference(sums, values(weight), dtype).y, dtype == DType::bf16 ? 0x1.8p-7 : 1e-6, 1e-7));
    }
}

struct Gradients {
  std::vector<double> dx, dweight;
};

Gradients reference_gradients(const std::vector<double>& x, const std::vector<double>& weight,
                              const std::vector<double>& dy, DType dtype) {
  const std::size_t width = weight.size(), rows = x.size() / width;
  Gradients result{std::vector<double>(x.size()), std::vector<double>(width)};
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0, dot = 0;
    for (std::size_t i = 0; i < width; ++i) {
      squares += x[r * width + i] * x[r * width + i];
      dot += dy[r * width + i] * weight[i] * x[r * width + i];
    }
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (std::size_t i = 0; i < width; ++i) {
      const double value = x[r * width + i], g = dy[r * width + i];
      result.dx[r * width + i] = rstd * (g * weight[i] - value * rstd * rstd * dot / static_cast<double>(width));
      result.dweight[i] += g * rounded(value * rstd, dtype);
    }
  }
  return result;
}

TEST(RmsNormBackward, MatchesTheFormula) {
  std::uint32_t seed = 100;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kNormShapes)
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{}{} accumulate {}", to_string(dtype), shape.to_string(), accumulate));
        Generator random(++seed);
        const Tensor x = random.normal_view(shape, dtype, 3), weight = random.normal({shape[-1]}, dtype);
        const Tensor dy = random.normal_view(shape, dtype, 1), dsum = random.normal(shape, dtype);
        Shape rows;
        for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
        const Tensor rstd = Tensor::empty(rows, DType::f32), y = Tensor::empty(shape, dtype);
        rms_norm({.x = x, .weight = weight, .eps = kEps, .y = y, .rstd = rstd});
        const bool wide = shape[0] % 2 == 0;  // dweight in f32 or in the dtype of x
        const Tensor dweight = random.normal({shape[-1]}, wide ? DType::f32 : dtype);
        const std::vector<double> old = values(dweight), past = values(dsum);
        Gradients expected = reference_gradients(values(x), values(weight), values(dy), dtype);
        for (std::size_t i = 0; i < past.size(); ++i) expected.dx[i] += past[i];
        for (std::size_t i = 0; accumulate && i < old.size(); ++i) expected.dweight[i] += old[i];
        const Tensor dx = Generator::empty_view(shape, dtype, 2);
        rms_norm_backward({.dy = dy,
                           .x = x,
                           .weight = weight,
                           .rstd = rstd,
                           .dsum = dsum,
                           .dx = dx,
                           .dweight = dweight,
                           .accumulate_dweight = accumulate});
        const double tolerance = shape[-1] == 1 ? 1e-4 : 4e-6;  // a width of 1 cancels almost exactly
        EXPECT_TRUE(close(dx, expected.dx, rounding(dtype) * 1.01, tolerance));
        // Rounding xhat to bf16 may flip at a boundary.
        EXPECT_TRUE(
            close(dweight, expected.dweight, rounding(dweight.dtype()) * 1.01, dtype == DType::bf16 ? 0.04 : 1e-5));
      }
}

// Gemma's norm: x rstd (weight + 1) with one rounding, and weights' gradients without one.
TEST(RmsNorm, WeightOffsetWithOneRounding) {
  std::uint32_t seed = 300;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kNormShapes) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const Tensor x = random.normal_view(shape, dtype, 3), weight = random.normal({shape[-1]}, dtype);
      const Tensor dy = random.normal_view(shape, dtype, 1);
      std::vector<double> shifted = values(weight);
      for (double& w : shifted) w += 1;
      Shape rows;
      for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
      const Tensor rstd = Tensor::empty(rows, DType::f32), y = Tensor::empty(shape, dtype);
      rms_norm({.x = x, .weight = weight, .eps = kEps, .weight_offset = 1, .f32_weight = true, .y = y, .rstd = rstd});
      EXPECT_TRUE(close(y, reference(values(x), shifted, DType::f32).y, rounding(dtype) * 1.01 + 1e-6, 1e-7));
      const Tensor dx = Tensor::empty(shape, dtype), dweight = Tensor::empty({shape[-1]}, DType::f32),
                   again = Tensor::empty(shape, dtype);
      rms_norm_backward({.dy = dy,
                         .x = x,
                         .weight = weight,
                         .rstd = rstd,
                         .dx = dx,
                         .dweight = dweight,
                         .weight_offset = 1,
                         .f32_weight = true,
                         .y = again});
      const Gradients expected = reference_gradients(values(x), shifted, values(dy), DType::f32);
      EXPECT_TRUE(close(dx, expected.dx, rounding(dtype) * 1.01, shape[-1] == 1 ? 1e-4 : 4e-6));
      EXPECT_TRUE(close(dweight, expected.dweight, 1e-6, 1e-5));
      EXPECT_TRUE(same_bits(again, y));
    }
  const Tensor x = Tensor::zeros({2, 4}, DType::f32);
  EXPECT_THROW(rms_norm({.x = x,
                         .weight = Tensor::zeros({4}, DType::f32),
                         .weight_offset = 1,
                         .y = x.clone(),
                         .rstd = Tensor::zeros({2}, DType::f32)}),
               Error);
}

TEST(RmsNormBackward, MayOverwriteItsInputs) {
  Generator random(5);
  const Shape shape{20, 50};
  const Tensor x = random.normal(shape, DType::f32), dy = random.normal(shape, DType::f32),
               dsum = random.normal(shape, DType::f32);
  const Tensor weight = random.normal({50}, DType::f32), rstd = Tensor::empty({20}, DType::f32),
               dx = Tensor::empty(shape, DType::f32);
  rms_norm({.x = x, .weight = weight, .y = dx, .rstd = rstd});
  rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dsum = dsum, .dx = dx});
  const Tensor over_dy = dy.clone(), over_dsum = dsum.clone();
  rms_norm_backward({.dy = over_dy, .x = x, .weight = weight, .rstd = rstd, .dsum = dsum, .dx = over_dy});
  rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dsum = over_dsum, .dx = over_dsum});
  EXPECT_TRUE(same_bits(dx, over_dy));
  EXPECT_TRUE(same_bits(dx, over_dsum));
}

TEST(RmsNorm, BitsDoNotDependOnTheThreadCount) {
  Generator random(6);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{301, 200};
    const Tensor x = random.normal(shape, dtype), dy = random.normal(shape, dtype),
                 weight = random.normal({200}, dtype);
    const Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype),
                 rstd = Tensor::empty({301}, DType::f32), dweight = Tensor::empty({200}, DType::f32);
    EXPECT_TRUE(independent_of_threads({y, rstd}, [&] { rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd}); }));
    EXPECT_TRUE(independent_of_threads({dx, dweight}, [&] {
      rms_norm_backward({.dy = dy, .x = x, .weight = weight, .rstd = rstd, .dx = dx, .dweight = dweight});
    }));
  }
}

TEST(RmsNorm, NonFiniteRowsAreSeen) {
  const Tensor x = Tensor::zeros({3, 20}, DType::f32), weight = Tensor::empty({20}, DType::f32),
               y = Tensor::empty({3, 20}, DType::f32), rstd = Tensor::empty({3}, DType::f32);
  fill(weight, 1);
  fill(x, 2);
  x.data<float>()[25] = NAN;
  x.data<float>()[45] = INFINITY;
  rms_norm({.x = x, .weight = weight, .y = y, .rstd = rstd});
  EXPECT_NEAR(y.data<float>()[0], 1.0f, 1e-5f);
  EXPECT_TRUE(std::isnan(y.data<float>()[20]));
  EXPECT_TRUE(std::isnan(y.data<float>()[45]));
}

TEST(RmsNorm, EmptyInputs) {
  const Tensor none = Tensor::zeros({0, 8}, DType::f32), weight = Tensor::zeros({8}, DType::f32),
               rstd = Tensor::zeros({0}, DType::f32);
  rms_norm({.x = none, .weight = weight, .y = none, .rstd = rstd});
  const Tensor dweight = Tensor::empty({8}, DType::f32);
  fill(dweight, 3);
  rms_norm_backward({.dy = none,
                     .x = none,
                     .weight = weight,
                     .rstd = rstd,
                     .dx = none,
                     .dweight = dweight,
                     .accumulate_dweight = true});
  EXPECT_EQ(get_element(dweight, 0), 3);
  rms_norm_backward({.dy = none, .x = none, .weight = weight, .rstd = rstd, .dx = none, .dweight = dweight});
  EXPECT_EQ(get_element(dweight, 0), 0);
}

TEST(RmsNorm, RejectsWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 8}, DType::f32), weight = Tensor::zeros({8}, DType::f32),
               y = Tensor::zeros({2, 8}, DType::f32), rstd = Tensor::zeros({2}, DType::f32);
  EXPECT_THROW(rms_norm({.x = x, .weight = rstd, .y = y, .rstd = rstd}), Error);
  EXPECT_THROW(rms_norm({.x = x, .weight = weight, .y = y, .rstd = weight}), Error);
  EXPECT_THROW(rms_norm({.x = x, .residual = x, .weight = weight, .y = y, .rstd = rstd}), Error);
  EXPECT_THROW(rms_norm({.x = x, .weight = Tensor::zeros({8}, DType::bf16), .y = y, .rstd = rstd}), Error);
  EXPECT_THROW(rms_norm({.x = Tensor(), .weight = weight, .y = y, .rstd = rstd}), Error);
}

}  // namespace
}  // namespace quench
