#include "export/methods/gptq.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "export/methods/code_grid.h"
#include "export/methods/inverse_factor.h"
#include "export/methods/rtn.h"
#include "export/methods/tuned_weight.h"

namespace quench {
namespace {

constexpr std::int64_t kLazyBlock = 128;  // per lazy batch update

// In quantization order.
struct Inputs {
  std::vector<std::int64_t> order;  // i-th to be quantized
  std::vector<bool> dead;           // no input
  Tensor factor;                    // inverse_factor() in this order
};

Inputs prepare(const InputStatistics& statistics, const GptqOptions& options, std::string_view name) {
  const std::int64_t columns = statistics.columns();
  const Tensor gram = statistics.gram();
  QUENCH_CHECK(gram.defined(), "gptq: statistics without a Gram matrix");
  const float* g = gram.data<float>();
  const auto diagonal = [&](std::int64_t c) { return g[c * columns + c]; };
  Inputs in;
  in.order.resize(static_cast<std::size_t>(columns));
  std::iota(in.order.begin(), in.order.end(), 0);
  if (options.activation_order)
    std::ranges::stable_sort(in.order, [&](std::int64_t a, std::int64_t b) { return diagonal(a) > diagonal(b); });
  in.dead.resize(static_cast<std::size_t>(columns));
  const double mean = statistics.mean_square_sum();
  for (std::int64_t c = 0; c < columns; ++c) in.dead[static_cast<std::size_t>(c)] = !(diagonal(c) > 0);
  // Dead column: uncorrelated, without output error.
  std::vector<double> matrix(static_cast<std::size_t>(columns * columns));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < columns; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      matrix[static_cast<std::size_t>(i * columns + j)] =
          g[in.order[static_cast<std::size_t>(i)] * columns + in.order[static_cast<std::size_t>(j)]];
  for (std::int64_t i = 0; i < columns; ++i) {
    double& entry = matrix[static_cast<std::size_t>(i * (columns + 1))];
    entry = (in.dead[static_cast<std::size_t>(in.order[static_cast<std::size_t>(i)])] ? mean : entry) +
            options.damping * mean;
  }
  in.factor = inverse_factor(matrix, columns, name);
  return in;
}

// f32 [K], in storage order: what a column's squared rounding error costs when all others make up for it, 1 /
// (H^-1)_cc.
Tensor importance_of(const Inputs& in) {
  const std::int64_t columns = in.factor.size(0);
  const Tensor importance = Tensor::empty({columns}, DType::f32);
  const float* u = in.factor.data<float>();
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (std::int64_t r = 0; r <= c; ++r) sum += static_cast<double>(u[r * columns + c]) * u[r * columns + c];
    const std::int64_t column = in.order[static_cast<std::size_t>(c)];
    importance.data<float>()[column] = in.dead[static_cast<std::size_t>(column)] ? 0.0f : static_cast<float>(1 / sum);
  }
  return importance;
}

// f32, columns in quantization order.
Tensor ordered(const Tensor& weight, const Inputs& in) {
  const std::int64_t rows = weight.size(0), columns = weight.size(1);
  Tensor wide = weight;
  if (weight.dtype() != DType::f32) {
    wide = Tensor::empty(weight.shape(), DType::f32);
    cast({weight, wide});
  }
  const Tensor out = Tensor::empty(weight.shape(), DType::f32);
  const float* w = wide.data<float>();
  float* o = out.data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::int64_t column = in.order[static_cast<std::size_t>(i)];
      o[row * columns + i] = in.dead[static_cast<std::size_t>(column)] ? 0.0f : w[row * columns + column];
    }
  return out;
}

class Rounding {
 public:
  Rounding(QuantizedWeight& out, const Inputs& in, const Tensor& w, bool choose)
      : grid_(out),
        in_(in),
        columns_(w.size(1)),
        choose_(choose),
        group_(out.scheme.group_size),
        w_(w.data<float>()),
        u_(in.factor.data<float>()) {}

  // `errors` [end - begin]: divided by the diagonal.
  void row(std::int64_t row, std::int64_t begin, std::int64_t end, float* errors) {
    float* w = w_ + row * columns_;
    GroupScale scale;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = in_.order[static_cast<std::size_t>(i)];
      if (choose_) {
        // Within the block.
        if (column % group_ == 0) scale = grid_.choose(row, column / group_, w + i, group_);
      } else {
        scale = grid_.scale_of(row, column);
      }
      const float value = grid_.round(row, column, w[i], scale);
      const float* u = u_ + i * columns_;
      const float error = (w[i] - value) / u[i];
      errors[i - begin] = error;
#pragma omp simd
      for (std::int64_t k = i + 1; k < end; ++k) w[k] -= error * u[k];
    }
  }

 private:
  CodeGrid grid_;
  const Inputs& in_;
  std::int64_t columns_;
  bool choose_;
  std::int64_t group_;
  float* w_;
  const float* u_;
};

}  // namespace

std::string gptq_problem(const OperandScheme& scheme) {
  if (scheme.blocks) return "GPTQ has no rule for GGUF's blocks";
  if (!scheme.element && has_few_levels(scheme.mapping)) return "GPTQ has no rule for grids of few levels";
  return scheme.mapping == IntMapping::float_zero_point ? "GPTQ is for zero points that are integers" : "";
}

QuantizedWeight gptq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                     std::optional<DType> scale_dtype, const InputStatistics& inputs, const GptqOptions& options) {
  const std::string problem = gptq_problem(scheme);
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{} cannot be quantized: {}", name, problem);
  QuantizedWeight out = rtn(weight, scheme, name, scale_dtype, options.shared_amax);
  if (inputs.rows() == 0 || !(inputs.amax() > 0)) return out;
  const MemoryScope scope(MemoryCategory::workspace);
  const Inputs in = prepare(inputs, options, name);
  if (options.activation_order && grid_problem(scheme, "").empty())
    out = TunedWeight(weight, scheme, name, scale_dtype, options.shared_amax, importance_of(in)).quantized();
  const Tensor w = ordered(weight, in);
  const std::int64_t rows = w.size(0), columns = w.size(1);
  const bool choose = scheme.sharing == ScaleSharing::group && !options.activation_order;
  // Whole groups, at least kLazyBlock columns.
  const std::int64_t group = choose ? scheme.group_size : 1;
  const std::int64_t block = std::min(columns, (kLazyBlock + group - 1) / group * group);
  Rounding rounding(out, in, w, choose);
  const Tensor errors = Tensor::empty({rows, block}, DType::f32);
  for (std::int64_t begin = 0; begin < columns; begin += block) {
    const std::int64_t end = std::min(begin + block, columns);
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) rounding.row(row, begin, end, errors.data<float>() + row * block);
    if (end == columns) break;
    gemm({.a = errors.narrow(1, 0, end - begin),
          .b = in.factor.narrow(0, begin, end - begin).narrow(1, end, columns - end),
          .c = w.narrow(1, end, columns - end),
          .alpha = -1.0f,
          .beta = 1.0f});
  }
  return out;
}

}  // namespace quench
