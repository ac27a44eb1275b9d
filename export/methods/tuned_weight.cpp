#include "export/methods/tuned_weight.h"

#include "core/ops/elementwise.h"
#include "export/methods/rtn.h"

namespace quench {
namespace {

constexpr float kLeastFactor = 0.5f, kMostFactor = 1.5f;

Tensor widened(const Tensor& values) {
  if (values.dtype() == DType::f32) return values.clone();
  const Tensor wide = Tensor::empty(values.shape(), DType::f32);
  cast({values, wide});
  return wide;
}

float sign(double value) {
  return value > 0 ? 1.0f : value < 0 ? -1.0f : 0.0f;
}

void move_factor(float& factor, double gradient, float rate) {
  factor = std::clamp(factor - rate * sign(gradient), kLeastFactor, kMostFactor);
}

// Derivatives of the loss by a group's scale and zero point.
struct ScaleGradient {
  double scale = 0, zero_point = 0;
};

// Moves the offsets of one group.
template <class Rounding>
ScaleGradient step_offsets(const Rounding& rounding, const float* w, const float* g, float* v, std::int64_t count,
                           const GridScale& scale, float rate) {
  float by_scale = 0, by_zero = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = w[i] / scale.scale;
    const GridCode made = rounding(scaled, v[i], scale.zero_point);
    by_scale += g[i] * (made.inside ? made.code - scaled : made.code);
    by_zero += made.inside ? 0.0f : -g[i] * scale.scale;
    const float direction = g[i] > 0 ? 1.0f : g[i] < 0 ? -1.0f : 0.0f;
    v[i] = made.inside ? std::clamp(v[i] - rate * direction, -0.5f, 0.5f) : v[i];
  }
  return {by_scale, by_zero};
}

}  // namespace

std::string autoround_problem(const OperandScheme& scheme) {
  return grid_problem(scheme, "AutoRound");
}

Tensor importance_of(const InputStatistics& inputs) {
  const Tensor importance = inputs.mean_magnitude();
  float* values = importance.data<float>();
  for (std::int64_t i = 0; i < importance.numel(); ++i) values[i] *= values[i];
  return importance;
}

TunedWeight::TunedWeight(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                         std::optional<DType> scale_dtype, std::optional<float> shared_amax, const Tensor& importance)
    : form_([&] {
        const std::string problem = autoround_problem(scheme);
        QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{} cannot be quantized: {}", name, problem);
        return rtn(weight, scheme, name, scale_dtype, shared_amax);
      }()),
      grid_(form_),
      weight_(widened(weight)) {
  const std::int64_t columns = weight.size(1), size = grid_.group_size(), groups = weight.numel() / size;
  now_.offsets = Tensor::zeros(weight.shape(), DType::f32);
  now_.groups.resize(static_cast<std::size_t>(groups));
  const float* w = weight_.data<float>();
  const float* columns_weight = importance.defined() ? importance.data<float>() : nullptr;
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < groups; ++i) {
    GroupBounds bounds = bounds_of(w + i * size, size);
    const float* here = columns_weight != nullptr ? columns_weight + i * size % columns : nullptr;
    const float factor = best_factor(grid_, w + i * size, here, bounds);
    now_.groups[static_cast<std::size_t>(i)].bounds = {bounds.low * factor, bounds.high * factor};
  }
  keep();
}

Tensor TunedWeight::values() const {
  const Tensor out = Tensor::empty(weight_.shape(), DType::f32);
  const std::int64_t size = grid_.group_size(), groups = std::ssize(now_.groups);
  const float *w = weight_.data<float>(), *v = now_.offsets.data<float>();
  float* o = out.data<float>();
  grid_.with_rounding([&](const auto& rounding) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < groups; ++i) {
      const GridScale scale = scale_of(now_.groups[static_cast<std::size_t>(i)]);
      for (std::int64_t k = i * size; k < (i + 1) * size; ++k)
        o[k] = scale.value(rounding(w[k] / scale.scale, v[k], scale.zero_point).code);
    }
  });
  return out;
}

void TunedWeight::step(const Tensor& gradient, float rate) {
  QUENCH_CHECK(gradient.shape() == weight_.shape() && gradient.is_contiguous(), "TunedWeight: gradient {}",
               gradient.describe());
  const std::int64_t size = grid_.group_size(), groups = std::ssize(now_.groups);
  const float *w = weight_.data<float>(), *g = gradient.data<float>();
  float* v = now_.offsets.data<float>();
  grid_.with_rounding([&](const auto& rounding) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < groups; ++i) {
      Group& group = now_.groups[static_cast<std::size_t>(i)];
      const GridScale scale = scale_of(group);
      const ScaleGradient by = step_offsets(rounding, w + i * size, g + i * size, v + i * size, size, scale, rate);
      if (!grid_.continuous()) continue;
      if (grid_.symmetric()) {
        move_factor(group.high, by.scale, rate);
        group.low = group.high;
        continue;
      }
      // scale = (high - low) / steps, zero point = lowest - low / scale.
      const double s = scale.scale, low = group.bounds.low * group.low, steps = grid_.steps();
      move_factor(group.high, by.scale / steps + by.zero_point * low / (s * s * steps), rate);
      move_factor(group.low, -(-by.scale / steps - by.zero_point * (1 / s + low / (s * s * steps))), rate);
    }
  });
}

void TunedWeight::keep() {
  if (!kept_.offsets.defined()) kept_.offsets = Tensor::empty(weight_.shape(), DType::f32);
  kept_.offsets.copy_from(now_.offsets);
  kept_.groups = now_.groups;
}

void TunedWeight::restore() {
  now_.offsets.copy_from(kept_.offsets);
  now_.groups = kept_.groups;
}

QuantizedWeight TunedWeight::quantized() const {
  QuantizedWeight out = form_;
  out.codes = form_.codes.clone();
  out.scales = form_.scales.clone();
  if (form_.zero_points.defined()) out.zero_points = form_.zero_points.clone();
  const std::int64_t size = grid_.group_size(), groups = std::ssize(now_.groups);
  const float *w = weight_.data<float>(), *v = now_.offsets.data<float>();
  grid_.with_rounding([&](const auto& rounding) {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < groups; ++i) {
      const GridScale scale = scale_of(now_.groups[static_cast<std::size_t>(i)]);
      std::vector<float> codes(static_cast<std::size_t>(size));
      for (std::int64_t k = 0; k < size; ++k)
        codes[static_cast<std::size_t>(k)] =
            rounding(w[i * size + k] / scale.scale, v[i * size + k], scale.zero_point).code;
      grid_.store(out, i, scale);
      grid_.store(out, i * size, codes.data(), scale);
    }
  });
  return out;
}

}  // namespace quench
