#include "export/methods/inverse_factor.h"

#include <algorithm>
#include <cmath>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::int64_t kFactorBlock = 64;

// y[0..n) -= factor * x[0..n)
void subtract(double* y, const double* x, double factor, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] -= factor * x[i];
}

constexpr std::int64_t kRowsAtOnce = 8;

// y[0..n) -= factors[r] * x_r[0..n) over kRowsAtOnce rows x_r, `stride` apart, which stay in cache.
void subtract_rows(double* y, const double* x, std::int64_t stride, const double* factors, std::int64_t n) {
  static_assert(kRowsAtOnce == 8);
  const double *x0 = x, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride, *x4 = x3 + stride, *x5 = x4 + stride,
               *x6 = x5 + stride, *x7 = x6 + stride;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    y[i] -= ((factors[0] * x0[i] + factors[1] * x1[i]) + (factors[2] * x2[i] + factors[3] * x3[i])) +
            ((factors[4] * x4[i] + factors[5] * x5[i]) + (factors[6] * x6[i] + factors[7] * x7[i]));
}

// H = R R^T, last column first: Cholesky with reversed indices, a[i][j] = R[j][i] for j <= i (row i of `a`: row i of
// R^T).
void factorize(std::vector<double>& a, std::int64_t n, std::string_view name) {
  for (std::int64_t end = n; end > 0; end -= std::min(kFactorBlock, end)) {
    const std::int64_t begin = std::max<std::int64_t>(end - kFactorBlock, 0);
    // Columns of R, last first, in the block.
    for (std::int64_t k = end - 1; k >= begin; --k) {
      double* row = a.data() + k * n;
      const double pivot = row[k];
      QUENCH_CHECK_AS(ErrorCode::nonfinite, pivot > 0 && std::isfinite(pivot),
                      "{} cannot be quantized: the Hessian of its inputs is not positive definite; raise the damping",
                      name);
      const double root = std::sqrt(pivot);
      for (std::int64_t j = 0; j <= k; ++j) row[j] /= root;
      for (std::int64_t i = begin; i < k; ++i) subtract(a.data() + i * n, row, row[i], i + 1);
    }
    // Earlier columns.
#pragma omp parallel for schedule(dynamic, 8)
    for (std::int64_t i = 0; i < begin; ++i) {
      double* row = a.data() + i * n;
      std::int64_t k = begin;
      for (; k + kRowsAtOnce <= end; k += kRowsAtOnce) {
        double factors[kRowsAtOnce];
        for (std::int64_t r = 0; r < kRowsAtOnce; ++r) factors[r] = a[(k + r) * n + i];
        subtract_rows(row, a.data() + k * n, n, factors, i + 1);
      }
      for (; k < end; ++k) subtract(row, a.data() + k * n, a[k * n + i], i + 1);
    }
  }
}

}  // namespace

Tensor inverse_factor(std::vector<double>& a, std::int64_t n, std::string_view name) {
  factorize(a, n, name);
  // L = R^T, in rows of `a`. U = R^-1 = (L^-1)^T: column i of L^-1 is row i of U. Blocked forward substitution.
  const Tensor result = Tensor::zeros({n, n}, DType::f32);
  auto* u = result.data<float>();
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t first = 0; first < n; first += kFactorBlock) {
    const std::int64_t width = std::min(kFactorBlock, n - first);
    // x[r][c] = L^-1[first + r][first + c].
    std::vector<double> x(static_cast<std::size_t>((n - first) * width), 0.0);
    for (std::int64_t row = first; row < n; ++row) {
      double* out = x.data() + (row - first) * width;
      if (row - first < width) out[row - first] = 1;
      const double* l = a.data() + row * n;
      std::int64_t k = first;
      for (; k + kRowsAtOnce <= row; k += kRowsAtOnce)
        subtract_rows(out, x.data() + (k - first) * width, width, l + k, width);
      for (; k < row; ++k) subtract(out, x.data() + (k - first) * width, l[k], width);
      for (std::int64_t c = 0; c < width; ++c) {
        out[c] /= l[row];
        u[(first + c) * n + row] = static_cast<float>(out[c]);
      }
    }
  }
  return result;
}

}  // namespace quench
