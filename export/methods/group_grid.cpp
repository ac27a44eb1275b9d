#include "export/methods/group_grid.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr float kFactors[] = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.65f, 0.6f, 0.55f,
                              0.5f, 0.45f, 0.4f, 1.05f, 1.1f, 1.2f,  1.3f, 1.4f,  1.5f};

GridForm form_of(const QuantizedWeight& weight) {
  const OperandScheme& scheme = weight.scheme;
  GridForm form{.bits = scheme.bits, .mapping = scheme.mapping, .stored = weight.scales.dtype()};
  if (!scheme.element) return form;
  form.element = *scheme.element;
  form.kind = scheme.scale == ScaleForm::e8m0             ? GridKind::mx
              : scheme.scale == ScaleForm::e4m3_two_level ? GridKind::nvfp4
                                                          : GridKind::floats;
  if (weight.global_scale.defined()) form.global = weight.global_scale.data<float>()[0];
  return form;
}

}  // namespace

std::string grid_problem(const OperandScheme& scheme, std::string_view method) {
  if (scheme.blocks) return fmt::format("{} has no rule for GGUF's blocks", method);
  if (!scheme.element && has_few_levels(scheme.mapping))
    return fmt::format("{} has no rule for grids of few levels", method);
  if (!scheme.element && scheme.mapping != IntMapping::symmetric &&
      scheme.mapping != IntMapping::symmetric_no_clipping && scheme.mapping != IntMapping::asymmetric)
    return fmt::format("{} is for zero points that are integers", method);
  return scheme.sharing == ScaleSharing::row || scheme.sharing == ScaleSharing::group
             ? ""
             : fmt::format("{} is for scales of a row or group", method);
}

GroupGrid::GroupGrid(const QuantizedWeight& weight)
    : form_(form_of(weight)),
      size_(weight.scheme.sharing == ScaleSharing::group ? weight.scheme.group_size : weight.shape[1]) {}

void GroupGrid::store(QuantizedWeight& weight, std::int64_t index, const GridScale& scale) const {
  switch (weight.scales.dtype()) {
    case DType::f32: weight.scales.data<float>()[index] = scale.scale; break;
    case DType::bf16: weight.scales.data<bfloat16>()[index] = bfloat16(scale.scale); break;
    case DType::f16: weight.scales.data<float16>()[index] = float16(scale.scale); break;
    default: static_cast<std::uint8_t*>(weight.scales.raw_data())[index] = scale.byte;
  }
  if (weight.zero_points.defined()) weight.zero_points.data<float>()[index] = scale.zero_point;
}

void GroupGrid::store(QuantizedWeight& weight, std::int64_t first, const float* codes, const GridScale& scale) const {
  if (form_.kind == GridKind::integers) {
    auto* out = weight.codes.data<std::int8_t>() + first;
    for (std::int64_t i = 0; i < size_; ++i) out[i] = static_cast<std::int8_t>(codes[i] + scale.zero_point);
    return;
  }
  auto* out = static_cast<std::uint8_t*>(weight.codes.raw_data());
  dispatch_element<E4m3, E2m3, E3m2, E2m1>(form_.element, "GroupGrid", [&]<class Element>() {
    const bool pairs = weight.codes.dtype() == DType::f4_e2m1;
    for (std::int64_t i = 0; i < size_; i += pairs ? 2 : 1)
      if (pairs)
        out[(first + i) / 2] = pack_nibbles(Element::encode(codes[i]), Element::encode(codes[i + 1]));
      else
        out[first + i] = Element::encode(codes[i]);
  });
}

GroupBounds bounds_of(const float* values, std::int64_t count) {
  GroupBounds bounds;
  for (std::int64_t i = 0; i < count; ++i) {
    bounds.low = std::min(bounds.low, values[i]);
    bounds.high = std::max(bounds.high, values[i]);
  }
  return bounds;
}

float best_factor(const GroupGrid& grid, const float* values, const float* importance, const GroupBounds& bounds) {
  float best = 1, least = 0;
  dispatch_grid(grid.form(), "best_factor", [&]<class Element>() {
    const GridRounding<Element> rounding(grid.form());
    for (const float factor : kFactors) {
      const GridScale scale = GridRounding<Element>::scale(grid.form(), bounds.low * factor, bounds.high * factor);
      float error = 0;
      for (std::int64_t i = 0; i < grid.group_size(); ++i) {
        const float difference =
            values[i] - scale.value(rounding(values[i] / scale.scale, 0.0f, scale.zero_point).code);
        error += difference * difference * (importance != nullptr ? importance[i] : 1.0f);
      }
      if (factor != kFactors[0] && !(error < least)) continue;
      least = error;
      best = factor;
    }
  });
  return best;
}

}  // namespace quench
