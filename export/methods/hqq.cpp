#include "export/methods/hqq.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize_int.h"
#include "export/methods/rtn.h"

namespace quench {
namespace {

constexpr int kSteps = 20;
constexpr float kPower = 0.7f, kFirstBeta = 10.0f, kGrowth = 1.01f;

// Shrinkage: proximal operator of |e|^p.
float shrink(float error, float beta) {
  const float magnitude = std::abs(error);
  if (magnitude == 0) return 0;
  return std::copysign(std::max(magnitude - std::pow(magnitude, kPower - 1) / beta, 0.0f), error);
}

struct Group {
  const float* w;
  std::int64_t count;
  IntRange range;
  float scale, zero;

  [[nodiscard]] float code(float x) const {
    return std::clamp(std::nearbyint(x / scale) + zero, static_cast<float>(range.lowest),
                      static_cast<float>(range.highest));
  }
  // Selection criterion.
  [[nodiscard]] double error() const {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += std::abs(w[i] - (code(w[i]) - zero) * scale);
    return sum;
  }
  // Least squares against the weight minus its sparse error: scale, then zero point.
  void improve(bool symmetric, float beta) {
    double cw = 0, cc = 0, codes = 0, targets = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float c = code(w[i]), centred = c - zero, target = w[i] - shrink(w[i] - centred * scale, beta);
      cw += static_cast<double>(centred) * target;
      cc += static_cast<double>(centred) * centred;
      codes += c;
      targets += target;
    }
    if (cc > 0 && cw > 0) scale = static_cast<float>(cw / cc);
    if (!symmetric)
      zero = std::clamp(std::nearbyint(static_cast<float>((codes - targets / scale) / static_cast<double>(count))),
                        static_cast<float>(range.lowest), static_cast<float>(range.highest));
  }
};

// beta: normalised by the weight's magnitude.
void optimize(Group& group, bool symmetric, DType stored) {
  Group best = group;
  double least = group.error();
  float largest = 0;
  for (std::int64_t i = 0; i < group.count; ++i) largest = std::max(largest, std::abs(group.w[i]));
  if (largest == 0) return;
  float beta = kFirstBeta * std::pow(largest, kPower - 2);
  for (int step = 0; step < kSteps; ++step, beta *= kGrowth) {
    group.improve(symmetric, beta);
    group.scale = stored_scale(group.scale, stored);
    const double error = group.error();
    if (!(error < least)) continue;
    least = error;
    best = group;
  }
  group = best;
}

}  // namespace

std::string hqq_problem(const OperandScheme& scheme) {
  const bool integers = !scheme.element && !scheme.blocks &&
                        (scheme.mapping == IntMapping::symmetric || scheme.mapping == IntMapping::asymmetric);
  return integers ? "" : "half-quadratic quantization is for integers";
}

QuantizedWeight hqq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                    std::optional<DType> scale_dtype) {
  const std::string problem = hqq_problem(scheme);
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{} cannot be quantized: {}", name, problem);
  QuantizedWeight out = rtn(weight, scheme, name, scale_dtype);
  const DType stored = out.scales.dtype();
  const std::int64_t columns = weight.size(1), size = scheme.group_size > 0 ? scheme.group_size : columns;
  const std::int64_t groups = weight.numel() / size;
  Tensor wide = weight, scales = out.scales;
  if (weight.dtype() != DType::f32) {
    wide = Tensor::empty(weight.shape(), DType::f32);
    cast({weight, wide});
  }
  if (stored != DType::f32) {
    scales = Tensor::empty(out.scales.shape(), DType::f32);
    cast({out.scales, scales});
  }
#pragma omp parallel for schedule(static)
  for (std::int64_t g = 0; g < groups; ++g) {
    Group group{wide.data<float>() + g * size, size, int_range(scheme.bits), scales.data<float>()[g],
                out.zero_points.defined() ? out.zero_points.data<float>()[g] : 0.0f};
    optimize(group, scheme.symmetric(), stored);
    scales.data<float>()[g] = group.scale;
    if (out.zero_points.defined()) out.zero_points.data<float>()[g] = group.zero;
    for (std::int64_t i = 0; i < size; ++i)
      out.codes.data<std::int8_t>()[g * size + i] = static_cast<std::int8_t>(group.code(group.w[i]));
  }
  if (stored != DType::f32) cast({scales, out.scales});
  return out;
}

}  // namespace quench
