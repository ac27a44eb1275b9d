#include "core/ops/adapters/magnitude.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using testing::get_element;
using testing::values;

// A matrix whose rows have gaps.
Tensor strided_rows(testing::Generator& random, std::int64_t rows, std::int64_t columns, DType dtype) {
  const Tensor all = Tensor::empty({rows, columns + 5}, dtype);
  random.fill_normal(all);
  return all.narrow(1, 3, columns);
}

TEST(Magnitude, NormsMatchRows) {
  testing::Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = Tensor::empty({9, 77}, dtype), out = Tensor::empty({9}, DType::f32);
    random.fill_normal(x);
    row_norms({.x = x, .out = out});
    const std::vector<double> all = values(x);
    for (std::int64_t n = 0; n < 9; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < 77; ++k) sum += all[std::size_t(n * 77 + k)] * all[std::size_t(n * 77 + k)];
      EXPECT_NEAR(out.data<float>()[n], std::sqrt(sum), 1e-5 * std::sqrt(sum));
    }
  }
}

TEST(Magnitude, LinesAreScaledAndGetTheirBias) {
  testing::Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool by_row : {false, true})
      for (const bool scaled : {false, true}) {
        const std::int64_t rows = 7, columns = 41, lines = by_row ? rows : columns;
        const Tensor x = strided_rows(random, rows, columns, dtype), out = strided_rows(random, rows, columns, dtype);
        const Tensor bias = Tensor::empty({columns}, dtype), magnitude = Tensor::empty({lines}, dtype),
                     norms = Tensor::empty({lines}, DType::f32);
        random.fill_normal(bias);
        random.fill_normal(magnitude);
        for (std::int64_t i = 0; i < lines; ++i) norms.data<float>()[i] = 0.5f + float(i);
        scale_by_magnitude({.x = x,
                            .magnitude = scaled ? magnitude : Tensor(),
                            .norms = norms,
                            .bias = bias,
                            .out = out,
                            .by_row = by_row});
        const std::vector<double> from = values(x), to = values(out);
        for (std::int64_t i = 0; i < rows * columns; ++i) {
          const std::int64_t line = by_row ? i / columns : i % columns;
          const double factor = scaled ? get_element(magnitude, line) / get_element(norms, line) : 1.0;
          const double expected = from[std::size_t(i)] * factor + get_element(bias, i % columns);
          EXPECT_NEAR(to[std::size_t(i)], expected, (dtype == DType::f32 ? 1e-6 : 8e-3) * (1 + std::abs(expected)));
        }
      }
}

TEST(Magnitude, GradientIsTheColumnsProductOverTheNorm) {
  testing::Generator random(3);
  const std::int64_t rows = 150, columns = 37;
  const Tensor x = strided_rows(random, rows, columns, DType::f32),
               dy = strided_rows(random, rows, columns, DType::f32);
  const Tensor norms = Tensor::empty({columns}, DType::f32), out = Tensor::zeros({columns}, DType::f32);
  for (std::int64_t i = 0; i < columns; ++i) norms.data<float>()[i] = 0.5f + float(i);
  for (const int times : {1, 2, 3}) {
    magnitude_gradient({.dy = dy, .x = x, .norms = norms, .out = out, .accumulate = times > 1});
    const std::vector<double> a = values(x), b = values(dy);
    for (std::int64_t i = 0; i < columns; ++i) {
      double sum = 0;
      for (std::int64_t n = 0; n < rows; ++n) sum += a[std::size_t(n * columns + i)] * b[std::size_t(n * columns + i)];
      EXPECT_NEAR(out.data<float>()[i], times * sum / get_element(norms, i), 1e-4);
    }
  }
}

TEST(Magnitude, WhatDoesNotFitIsNamed) {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32), three = Tensor::zeros({3}, DType::f32);
  EXPECT_THROW(row_norms({.x = x, .out = three}), Error);
  EXPECT_THROW(scale_by_magnitude({.x = x, .magnitude = three, .norms = {}, .bias = {}, .out = x}), Error);
  EXPECT_THROW(scale_by_magnitude({.x = x, .magnitude = three, .norms = three, .bias = {}, .out = x, .by_row = true}),
               Error);
  EXPECT_THROW(magnitude_gradient({.dy = x, .x = x, .norms = x, .out = three}), Error);
}

}  // namespace
}  // namespace quench
