#include "export/methods/input_statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/number/dtype.h"
#include "core/ops/gemm.h"

namespace quench {

InputStatistics::InputStatistics(std::int64_t columns, bool with_gram)
    : largest_(Tensor::zeros({columns}, DType::f32)),
      magnitude_(Tensor::zeros({columns}, DType::f64)),
      squares_(Tensor::zeros({columns}, DType::f64)),
      with_gram_(with_gram) {}

void InputStatistics::add(const Tensor& x, std::string_view layer, std::span<const std::int64_t> first_rows) {
  const std::int64_t rows = x.size(0), columns = this->columns();
  QUENCH_CHECK(x.rank() == 2 && x.size(1) == columns, "InputStatistics: {}, expected {} columns", x.describe(),
               columns);
  if (rows == 0) return;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor host = x.to(Device{});
  float* largest = largest_.data<float>();
  double *magnitude = magnitude_.data<double>(), *squares = squares_.data<double>();
  dispatch<float, bfloat16>(host.dtype(), "InputStatistics", [&]<class T>() {
    const T* values = host.data<T>();
    constexpr std::int64_t kColumns = 64;  // per thread
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < columns; first += kColumns) {
      const std::int64_t last = std::min(first + kColumns, columns);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t c = first; c < last; ++c) {
          const float size = std::abs(static_cast<float>(values[row * columns + c]));
          largest[c] = size > largest[c] ? size : largest[c];
          magnitude[c] += size;  // propagates NaN
          squares[c] += static_cast<double>(size) * size;
        }
    }
  });
  for (std::int64_t c = 0; c < columns; ++c)
    QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(magnitude[c]),
                    "calibration: the input of {} holds NaN or infinity", layer);
  rows_ += rows;
  if (!with_gram_) return;
  dispatch<float, bfloat16>(host.dtype(), "InputStatistics", [&]<class T>() {
    for (const std::int64_t row : first_rows) {
      const T* values = host.data<T>() + row * columns;
      std::transform(values, values + columns, std::back_inserter(first_), [](T value) { return float(value); });
    }
  });
  const bool first = !gram_.defined();
  if (first) gram_ = Tensor::empty({columns, columns}, DType::f32, x.device());
  gemm({.a = x, .b = x, .c = gram_, .transpose_a = true, .beta = first ? 0.0f : 1.0f});
}

void InputStatistics::divide(const Tensor& factors) {
  const std::int64_t columns = this->columns();
  const float* s = factors.data<float>();
  for (std::int64_t c = 0; c < columns; ++c) {
    largest_.data<float>()[c] /= s[c];
    magnitude_.data<double>()[c] /= s[c];
    squares_.data<double>()[c] /= static_cast<double>(s[c]) * s[c];
  }
  for (std::size_t i = 0; i < first_.size(); ++i) first_[i] /= s[i % static_cast<std::size_t>(columns)];
  if (!gram_.defined()) return;
  gram_ = gram_.to(Device{});
  float* g = gram_.data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < columns; ++r)
    for (std::int64_t c = 0; c < columns; ++c) g[r * columns + c] /= s[r] * s[c];
}

Tensor InputStatistics::mean_magnitude() const {
  const Tensor mean = Tensor::empty(largest_.shape(), DType::f32);
  for (std::int64_t c = 0; c < columns(); ++c)
    mean.data<float>()[c] =
        static_cast<float>(magnitude_.data<double>()[c] / static_cast<double>(std::max<std::int64_t>(rows_, 1)));
  return mean;
}

float InputStatistics::amax() const {
  return *std::max_element(largest_.data<float>(), largest_.data<float>() + columns());
}

Tensor InputStatistics::gram() const {
  if (!gram_.defined()) return {};
  const Tensor host = gram_.to(Device{});
  const std::int64_t columns = this->columns(), tokens = std::ssize(first_) / columns;
  const double first = squares_of_first();
  if (!(first > 0)) return host;
  const double length = static_cast<double>(rows_) / static_cast<double>(tokens);
  const double weight = kFirstShare * std::min(length, squares_of_all() / first);
  if (!(weight > 1)) return host;
  const Tensor out = host.clone();
  const Tensor rows = Tensor::from_values<float>({tokens, columns}, first_);
  gemm({.a = rows, .b = rows, .c = out, .transpose_a = true, .alpha = static_cast<float>(weight - 1), .beta = 1.0f});
  return out;
}

double InputStatistics::squares_of_first() const {
  double sum = 0;
  for (const float value : first_) sum += static_cast<double>(value) * value;
  return sum;
}

double InputStatistics::squares_of_all() const {
  return std::accumulate(squares_.data<double>(), squares_.data<double>() + columns(), 0.0);
}

double InputStatistics::mean_square_sum() const {
  const double all = squares_of_all(), rest = all - squares_of_first();
  return (rest > 1e-9 * all ? rest : all) / static_cast<double>(columns());
}

double output_error(const Tensor& difference, const Tensor& gram) {
  const MemoryScope scope(MemoryCategory::workspace);
  constexpr std::int64_t kRows = 512;
  const std::int64_t rows = difference.size(0), columns = difference.size(1);
  const Tensor product = Tensor::empty({std::min(kRows, rows), columns}, DType::f32);
  double error = 0;
  for (std::int64_t row = 0; row < rows; row += kRows) {
    const std::int64_t count = std::min(kRows, rows - row);
    const Tensor part = difference.narrow(0, row, count);
    gemm({.a = part, .b = gram, .c = product.narrow(0, 0, count)});
    const float *d = part.data<float>(), *p = product.data<float>();
    for (std::int64_t i = 0; i < count * columns; ++i) error += static_cast<double>(d[i]) * p[i];
  }
  return error;
}

}  // namespace quench
