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
    for (std::int64_t i = 0; i < begin; ++i)
      for (std::int64_t k = end - 1; k >= begin; --k) subtract(a.data() + i * n, a.data() + k * n, a[k * n + i], i + 1);
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
      for (std::int64_t k = first; k < row; ++k) subtract(out, x.data() + (k - first) * width, l[k], width);
      for (std::int64_t c = 0; c < width; ++c) {
        out[c] /= l[row];
        u[(first + c) * n + row] = static_cast<float>(out[c]);
      }
    }
  }
  return result;
}

}  // namespace quench
