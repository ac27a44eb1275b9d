#include "export/methods/tuned_weight.h"

#include <algorithm>
#include <vector>

#include "core/ops/elementwise.h"
#include "export/methods/rtn.h"

namespace quench {
namespace {

Tensor widened(const Tensor& values) {
  if (values.dtype() == DType::f32) return values.clone();
  const Tensor wide = Tensor::empty(values.shape(), DType::f32);
  cast({values, wide});
  return wide;
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
                         std::optional<DType> scale_dtype, std::optional<float> shared_amax, const Tensor& importance,
                         Device device)
    : form_([&] {
        const std::string problem = autoround_problem(scheme);
        QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{} cannot be quantized: {}", name, problem);
        return rtn(weight, scheme, name, scale_dtype, shared_amax);
      }()),
      grid_(form_) {
  const Tensor wide = widened(weight);
  const std::int64_t columns = weight.size(1), size = grid_.group_size(), groups = weight.numel() / size;
  const Tensor bounds = Tensor::empty({groups, 2}, DType::f32), factors = Tensor::empty({groups, 2}, DType::f32);
  const float* w = wide.data<float>();
  const float* columns_weight = importance.defined() ? importance.data<float>() : nullptr;
  std::fill_n(factors.data<float>(), factors.numel(), 1.0f);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < groups; ++i) {
    const GroupBounds found = bounds_of(w + i * size, size);
    const float* here = columns_weight != nullptr ? columns_weight + i * size % columns : nullptr;
    const float factor = best_factor(grid_, w + i * size, here, found);
    bounds.data<float>()[2 * i] = found.low * factor;
    bounds.data<float>()[2 * i + 1] = found.high * factor;
  }
  now_ = {wide.to(device), Tensor::zeros(weight.shape(), DType::f32, device), bounds.to(device), factors.to(device),
          grid_.form()};
  keep();
}

void TunedWeight::write_values(const Tensor& out, float multiplier) const {
  tuned_values({now_, out, multiplier});
}

Tensor TunedWeight::values() const {
  const Tensor out = Tensor::empty(now_.w.shape(), DType::f32, now_.w.device());
  write_values(out);
  return out;
}

void TunedWeight::step(const Tensor& gradient, float rate) {
  tuned_step({now_, gradient, rate});
}

void TunedWeight::keep() {
  if (!kept_offsets_.defined()) {
    kept_offsets_ = Tensor::empty(now_.offsets.shape(), DType::f32, now_.offsets.device());
    kept_factors_ = Tensor::empty(now_.factors.shape(), DType::f32, now_.factors.device());
  }
  kept_offsets_.copy_from(now_.offsets);
  kept_factors_.copy_from(now_.factors);
}

void TunedWeight::restore() {
  now_.offsets.copy_from(kept_offsets_);
  now_.factors.copy_from(kept_factors_);
}

QuantizedWeight TunedWeight::quantized() const {
  QuantizedWeight out = form_;
  out.codes = form_.codes.clone();
  out.scales = form_.scales.clone();
  if (form_.zero_points.defined()) out.zero_points = form_.zero_points.clone();
  const Tensor weight = now_.w.to(Device{}), offsets = now_.offsets.to(Device{}), bounds = now_.bounds.to(Device{}),
               factors = now_.factors.to(Device{});
  const std::int64_t size = grid_.group_size(), groups = bounds.size(0);
  const float *w = weight.data<float>(), *v = offsets.data<float>();
  dispatch_grid(grid_.form(), "TunedWeight", [&]<class Element>() {
    const GridRounding<Element> rounding(grid_.form());
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < groups; ++i) {
      const GridScale scale = tuned_group<Element>(grid_.form(), bounds.data<float>(), factors.data<float>(), i).scale;
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
