#include "export/methods/awq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"
#include "core/ops/quantize/quantize.h"
#include "export/methods/rtn.h"
#include "export/methods/tuned_weight.h"

namespace quench {
namespace {

constexpr int kRatios = 20;
constexpr double kSmallest = 1e-30;
constexpr float kLeast = 1e-4f;  // before normalisation

Tensor scaled_columns(const Tensor& weight, const float* factors) {
  const std::int64_t rows = weight.size(0), columns = weight.size(1);
  const Tensor out = Tensor::empty(weight.shape(), DType::f32);
  const float* w = weight.data<float>();
  float* o = out.data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) o[r * columns + c] = w[r * columns + c] * factors[c];
  return out;
}

// Amax of the scaled NVFP4 weights by expert, as share_amax() of export/ptq/quantized_layer.h.
std::map<std::int64_t, float> amax_of_scaled(const std::vector<ScaledWeight>& weights, const float* factors) {
  std::map<std::int64_t, float> most;
  for (const ScaledWeight& one : weights) {
    if (one.scheme == nullptr || one.scheme->scale != ScaleForm::e4m3_two_level) continue;
    const Tensor scaled = scaled_columns(one.weight, factors);
    float& shared = most.try_emplace(one.expert, 0.0f).first->second;
    shared = std::max(shared, *amax(scaled, Granularity::tensor).data<float>());
  }
  return most;
}

// Output error of `quantized`, values divided by `factors` [K] if any, against `weight` f32 [N,K].
double rounding_error(const Tensor& weight, const QuantizedWeight& quantized, std::string_view name,
                      const float* factors, const Tensor& gram) {
  const Tensor difference = Tensor::empty(weight.shape(), DType::f32);
  unpack({pack(quantized, std::string(name)), difference});
  const std::int64_t columns = weight.size(1), count = weight.numel();
  const float* w = weight.data<float>();
  float* d = difference.data<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) d[i] = w[i] - (factors != nullptr ? d[i] / factors[i % columns] : d[i]);
  return output_error(difference, gram);
}

// f32 [K]: mean squares.
Tensor mean_squares(const InputStatistics& inputs) {
  const Tensor mean = Tensor::empty({inputs.columns()}, DType::f32);
  for (std::int64_t c = 0; c < inputs.columns(); ++c)
    mean.data<float>()[c] = static_cast<float>(inputs.squares().data<double>()[c] / static_cast<double>(inputs.rows()));
  return mean;
}

}  // namespace

std::optional<Tensor> awq_scales(const ScaleChoiceArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  if (!any_quantized(args.weights) || args.inputs.rows() == 0 || !(args.inputs.amax() > 0)) return std::nullopt;
  const Tensor magnitude = args.inputs.mean_magnitude(), gram = args.inputs.gram();
  share_columns(magnitude, args.shared);
  const std::int64_t columns = args.inputs.columns();
  const float* m = magnitude.data<float>();
  // Normalised by output energy: projections of an input weigh the same.
  std::vector<double> energies;
  for (const ScaledWeight& one : args.weights) energies.push_back(std::max(output_error(one.weight, gram), kSmallest));
  Tensor best;
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step < kRatios; ++step) {
    const Tensor factors = Tensor::empty({columns}, DType::f32);
    float* s = factors.data<float>();
    for (std::int64_t c = 0; c < columns; ++c)
      s[c] = std::max(std::pow(m[c], static_cast<float>(step) / kRatios), kLeast);
    const auto [low, high] = std::minmax_element(s, s + columns);
    const float middle = std::sqrt(*low * *high);
    for (std::int64_t c = 0; c < columns; ++c) s[c] /= middle;
    double error = 0;
    const std::map<std::int64_t, float> shared = amax_of_scaled(args.weights, s);
    for (std::size_t i = 0; i < args.weights.size(); ++i) {
      const ScaledWeight& one = args.weights[i];
      if (one.scheme == nullptr) continue;
      const auto found = shared.find(one.expert);
      const QuantizedWeight rounded = rtn(scaled_columns(one.weight, s), *one.scheme, one.name, args.scale_dtype,
                                          found != shared.end() ? std::optional(found->second) : std::nullopt);
      error += rounding_error(one.weight, rounded, one.name, s, gram) / energies[i];
    }
    if (!(error < least)) continue;
    least = error;
    best = step == 0 ? Tensor() : factors;  // r = 0: factors 1
  }
  return best.defined() ? std::optional(best) : std::nullopt;
}

QuantizedWeight awq_weight(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                           std::optional<DType> scale_dtype, std::optional<float> shared_amax,
                           const InputStatistics* inputs) {
  QuantizedWeight best = rtn(weight, scheme, name, scale_dtype, shared_amax);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor gram = inputs != nullptr && inputs->rows() > 0 ? inputs->gram() : Tensor();
  if (!gram.defined() || !grid_problem(scheme, "").empty()) return best;
  Tensor wide = weight;
  if (weight.dtype() != DType::f32) {
    wide = Tensor::empty(weight.shape(), DType::f32);
    cast({weight, wide});
  }
  double least = rounding_error(wide, best, name, nullptr, gram);
  for (const Tensor& importance : {importance_of(*inputs), mean_squares(*inputs)}) {
    QuantizedWeight searched = TunedWeight(weight, scheme, name, scale_dtype, shared_amax, importance).quantized();
    const double error = rounding_error(wide, searched, name, nullptr, gram);
    if (!(error < least)) continue;
    least = error;
    best = std::move(searched);
  }
  return best;
}

}  // namespace quench
