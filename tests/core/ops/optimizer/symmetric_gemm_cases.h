#pragma once
// Symmetric products and what they are in f64.

#include <utility>
#include <vector>

#include "core/ops/optimizer/symmetric_gemm.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

// B is a multiple of A, so that the products are symmetric; with_addend: there is a symmetric addend, a
// diagonal, and a factor for each matrix.
struct SymmetricCase {
  Tensor a, b, addend;
  bool transpose, adds;
  std::vector<double> expected, magnitude;

  SymmetricCase(DType dtype, std::int64_t batch, std::int64_t n, std::int64_t k, bool transposed, bool with_addend)
      : transpose(transposed), adds(with_addend) {
    Generator random(static_cast<std::uint32_t>(n * 7 + k));
    a = random.normal(transpose ? Shape{batch, k, n} : Shape{batch, n, k}, dtype);
    b = Tensor::empty(a.shape(), dtype);
    for (std::int64_t i = 0; i < a.numel(); ++i) set_element(b, i, (adds ? 1.0 : -0.5) * get_element(a, i));
    if (adds) {
      addend = random.normal({batch, n, n}, dtype);
      for (std::int64_t m = 0; m < batch; ++m)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < i; ++j)
            set_element(addend, (m * n + j) * n + i, get_element(addend, (m * n + i) * n + j));
    }
    const auto va = values(a), vb = values(b), vc = adds ? values(addend) : std::vector<double>();
    for (std::int64_t m = 0; m < batch; ++m)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0, largest = 0;
          for (std::int64_t p = 0; p < k; ++p) {
            const auto at = [&](std::int64_t row) {
              return static_cast<std::size_t>(m * n * k + (transpose ? p * n + row : row * k + p));
            };
            sum += va[at(i)] * vb[at(j)];
            largest += std::abs(va[at(i)] * vb[at(j)]);
          }
          expected.push_back(2.0 * sum);
          if (adds) expected.back() += -3.0 * vc[expected.size() - 1] + (i == j ? 0.75 : 0.0);
          magnitude.push_back(2.0 * largest + std::abs(expected.back()));
          if (!adds) continue;
          expected.back() *= factor(m);
          magnitude.back() *= factor(m);
        }
  }

  static double factor(std::int64_t matrix) { return 0.75 + static_cast<double>(matrix); }

  [[nodiscard]] SymmetricGemmArgs args(Device device) const {
    const std::int64_t n = a.size(transpose ? 2 : 1);
    Tensor c = Tensor::empty({a.size(0), n, n}, a.dtype());
    fill(c, std::nan(""));  // must not be read
    Tensor factors = Tensor::empty({a.size(0)}, DType::f32);
    for (std::int64_t m = 0; m < a.size(0); ++m) set_element(factors, m, factor(m));
    return {.a = a.to(device),
            .b = b.to(device),
            .c = c.to(device),
            .transpose = transpose,
            .alpha = 2.0f,
            .beta = adds ? -3.0f : 0.0f,
            .addend = adds ? addend.to(device) : Tensor(),
            .diagonal = adds ? 0.75f : 0.0f,
            .factors = adds ? factors.to(device) : Tensor()};
  }

  // One rounding to the dtype, and what f32 sums lose.
  void check(const Tensor& c, double relative) const {
    const std::vector<double> got = values(c);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], relative * std::abs(expected[i]) + 0x1p-19 * magnitude[i]) << i;
  }
};

}  // namespace quench::testing
