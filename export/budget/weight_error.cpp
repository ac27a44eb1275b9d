#include "export/budget/weight_error.h"

#include <algorithm>
#include <numeric>

#include "core/ops/elementwise.h"
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

}  // namespace

double rounding_cost(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                     std::span<const ErrorWeights> weights, std::optional<DType> scale_dtype,
                     std::span<const float> importance) {
  const MemoryScope scope(MemoryCategory::workspace);
  const std::vector<std::int64_t> rows = sampled_rows(weight.size(0));
  const Tensor sample = rows_of(weight, rows), exact = wide_values(sample);
  const Tensor rounded = Tensor::empty(sample.shape(), DType::f32);
  unpack({pack(rtn(sample, scheme, name, scale_dtype, {}, importance), name), rounded});
  const std::int64_t columns = weight.size(1);
  double cost = 0;
  for (const ErrorWeights& of : weights) {
    double sum = 0, taken = 0;
    for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
      double row = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double error = static_cast<double>(exact.data<float>()[i * columns + c]) -
                             static_cast<double>(rounded.data<float>()[i * columns + c]);
        row += of.columns[static_cast<std::size_t>(c)] * error * error;
      }
      const double share = of.rows[static_cast<std::size_t>(rows[static_cast<std::size_t>(i)])];
      sum += share * row;
      taken += share;
    }
    if (taken > 0) cost += sum * (std::accumulate(of.rows.begin(), of.rows.end(), 0.0) / taken);
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
