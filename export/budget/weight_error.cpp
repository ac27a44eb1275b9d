#include "export/budget/weight_error.h"

#include <algorithm>
#include <numeric>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/packed_linear.h"
#include "export/methods/rtn.h"

namespace quench {
namespace {

constexpr std::int64_t kMostRows = 256;

std::vector<std::int64_t> sampled_rows(std::int64_t rows) {
  const std::int64_t count = std::min(rows, kMostRows);
  std::vector<std::int64_t> sample(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) sample[static_cast<std::size_t>(i)] = (2 * i + 1) * rows / (2 * count);
  return sample;
}

Tensor wide_values(const Tensor& values) {
  const Tensor out = Tensor::empty(values.shape(), DType::f32);
  cast({values, out});
  return out;
}

Tensor rows_of(const Tensor& weight, std::span<const std::int64_t> rows) {
  const Tensor out = Tensor::empty({std::ssize(rows), weight.size(1)}, weight.dtype());
  for (std::int64_t i = 0; i < std::ssize(rows); ++i)
    out.narrow(0, i, 1).copy_from(weight.narrow(0, rows[static_cast<std::size_t>(i)], 1));
  return out;
}

// Sums of errors [S,K] by row: columns[j] * e_j^2.
std::vector<double> by_columns(const Tensor& errors, std::span<const double> columns) {
  const std::int64_t width = errors.size(1);
  std::vector<double> sums(static_cast<std::size_t>(errors.size(0)));
  for (std::int64_t i = 0; i < errors.numel(); ++i) {
    const double error = errors.data<float>()[i];
    sums[static_cast<std::size_t>(i / width)] += columns[static_cast<std::size_t>(i % width)] * error * error;
  }
  return sums;
}

// e^T gram e by row, over the trace; empty: a trace of 0.
std::vector<double> by_gram(const Tensor& errors, const Tensor& gram) {
  const std::int64_t width = errors.size(1);
  double trace = 0;
  for (std::int64_t c = 0; c < width; ++c) trace += static_cast<double>(gram.data<float>()[c * width + c]);
  if (!(trace > 0)) return {};
  const Tensor product = Tensor::empty(errors.shape(), DType::f32);
  gemm({.a = errors, .b = gram, .c = product});
  std::vector<double> sums(static_cast<std::size_t>(errors.size(0)));
  for (std::int64_t i = 0; i < errors.numel(); ++i)
    sums[static_cast<std::size_t>(i / width)] +=
        static_cast<double>(errors.data<float>()[i]) * static_cast<double>(product.data<float>()[i]) / trace;
  return sums;
}

}  // namespace

double rounding_cost(const RoundingArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const std::vector<std::int64_t> rows = sampled_rows(args.weight.size(0));
  const Tensor sample = rows_of(args.weight, rows), exact = wide_values(sample);
  const Tensor errors = Tensor::empty(sample.shape(), DType::f32);
  unpack({pack(rtn(sample, args.scheme, args.name, args.scale_dtype, {}, args.importance), args.name), errors});
  for (std::int64_t i = 0; i < errors.numel(); ++i) errors.data<float>()[i] -= exact.data<float>()[i];
  const std::vector<double> correlated = args.gram.defined() ? by_gram(errors, args.gram) : std::vector<double>();
  double cost = 0;
  for (const ErrorWeights& of : args.weights) {
    const std::vector<double> sums = correlated.empty() ? by_columns(errors, of.columns) : correlated;
    const double scale = correlated.empty() ? 1.0 : std::accumulate(of.columns.begin(), of.columns.end(), 0.0);
    double sum = 0, taken = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double share = of.rows[static_cast<std::size_t>(rows[i])];
      sum += share * sums[i];
      taken += share;
    }
    if (taken > 0) cost += sum * scale * (std::accumulate(of.rows.begin(), of.rows.end(), 0.0) / taken);
  }
  return cost;
}

ErrorWeights relative_weights(const Tensor& weight, std::span<const float> columns) {
  const std::int64_t width = weight.size(1);
  const Tensor values = wide_values(weight);
  ErrorWeights weights{std::vector<double>(static_cast<std::size_t>(weight.size(0)), 1.0),
                       std::vector<double>(columns.begin(), columns.end())};
  if (columns.empty()) weights.columns.assign(static_cast<std::size_t>(width), 1.0);
  double power = 0;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.data<float>()[i];
    power += weights.columns[static_cast<std::size_t>(i % width)] * value * value;
  }
  if (power > 0)
    for (double& row : weights.rows) row /= power;
  return weights;
}

}  // namespace quench
