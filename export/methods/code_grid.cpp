#include "export/methods/code_grid.h"

#include <algorithm>
#include <cmath>

#include "core/number/e8m0.h"
#include "core/number/nvfp4.h"
#include "core/system/check.h"

namespace quench {
namespace {

float stored_value(const Tensor& scales, std::int64_t i) {
  switch (scales.dtype()) {
    case DType::f32: return scales.data<float>()[i];
    case DType::bf16: return float(scales.data<bfloat16>()[i]);
    case DType::f16: return float(scales.data<float16>()[i]);
    case DType::f8_e8m0: return decode_e8m0(static_cast<const std::uint8_t*>(scales.raw_data())[i]);
    case DType::f8_e4m3: return E4m3::decode(static_cast<const std::uint8_t*>(scales.raw_data())[i]);
    default: QUENCH_FAIL(ErrorCode::unsupported, "scales of dtype {}", to_string(scales.dtype()));
  }
}

void store_value(const Tensor& scales, std::int64_t i, float value) {
  switch (scales.dtype()) {
    case DType::f32: scales.data<float>()[i] = value; return;
    case DType::bf16: scales.data<bfloat16>()[i] = bfloat16(value); return;
    case DType::f16: scales.data<float16>()[i] = float16(value); return;
    default: QUENCH_FAIL(ErrorCode::unsupported, "scales of dtype {}", to_string(scales.dtype()));
  }
}

void store_byte(const Tensor& scales, std::int64_t i, std::uint8_t byte) {
  static_cast<std::uint8_t*>(scales.raw_data())[i] = byte;
}

}  // namespace

CodeGrid::CodeGrid(QuantizedWeight& weight)
    : weight_(weight), columns_(weight.shape[1]), across_(weight.scales.rank() == 2 ? weight.scales.size(1) : 1) {
  QUENCH_CHECK(!weight.scheme.blocks && weight.scheme.mapping != IntMapping::float_zero_point,
               "CodeGrid: a weight whose codes do not stand alone");
  if (weight.global_scale.defined()) global_ = weight.global_scale.data<float>()[0];
}

std::int64_t CodeGrid::scale_index(std::int64_t row, std::int64_t column) const {
  const std::int64_t size = weight_.scheme.group_size;
  switch (weight_.scheme.sharing) {
    case ScaleSharing::tensor: return 0;
    case ScaleSharing::row: return row;
    case ScaleSharing::group: return row * across_ + column / size;
    case ScaleSharing::block: return row / size * across_ + column / size;
  }
  return 0;
}

GroupScale CodeGrid::scale_of(std::int64_t row, std::int64_t column) const {
  const std::int64_t at = scale_index(row, column);
  const float stored = stored_value(weight_.scales, at);
  if (weight_.scheme.scale == ScaleForm::e4m3_two_level) return {global_ * stored, (1.0f / global_) / stored, 0};
  return {stored, 1.0f / stored, weight_.zero_points.defined() ? weight_.zero_points.data<float>()[at] : 0.0f};
}

GroupScale CodeGrid::choose(std::int64_t row, std::int64_t group, const float* values, std::int64_t count) {
  const OperandScheme& scheme = weight_.scheme;
  QUENCH_CHECK(scheme.sharing == ScaleSharing::group, "CodeGrid: scales of groups alone are chosen");
  const auto [low, high] = std::minmax_element(values, values + count);
  const float amax = std::max(std::abs(*low), std::abs(*high));
  const std::int64_t at = row * across_ + group;
  if (!scheme.element) {
    const IntParameters made = int_parameters<float>(*low, *high, scheme.mapping, scheme.bits, weight_.scales.dtype(),
                                                     [](float x) { return std::nearbyint(x); });
    store_value(weight_.scales, at, made.scale);
    if (weight_.zero_points.defined()) weight_.zero_points.data<float>()[at] = made.zero_point;
  } else if (scheme.scale == ScaleForm::e8m0) {
    dispatch_element<E4m3, E2m3, E3m2, E2m1>(*scheme.element, "CodeGrid", [&]<class Element>() {
      store_byte(weight_.scales, at, mx_scale<Element>(amax, MxScaleMode::rceil));
    });
  } else if (scheme.scale == ScaleForm::e4m3_two_level) {
    store_byte(weight_.scales, at, nvfp4_block_scale(amax, global_).code);
  } else {
    store_value(weight_.scales, at, amax / E4m3::kMax);
    if (!(stored_value(weight_.scales, at) > 0)) store_value(weight_.scales, at, 1.0f);
  }
  return scale_of(row, group * scheme.group_size);
}

float CodeGrid::round(std::int64_t row, std::int64_t column, float value, const GroupScale& scale) {
  const OperandScheme& scheme = weight_.scheme;
  const std::int64_t at = row * columns_ + column;
  if (!scheme.element) {
    const IntRange range = int_range(scheme.bits);
    const float code = std::clamp(std::nearbyint(value * scale.multiplier) + scale.zero_point,
                                  static_cast<float>(range.lowest), static_cast<float>(range.highest));
    weight_.codes.data<std::int8_t>()[at] = static_cast<std::int8_t>(code);
    return (code - scale.zero_point) * scale.scale;
  }
  // Powers of two and NVFP4 multiply; float8 divides (rtn.h).
  const float scaled = scheme.scale == ScaleForm::high_precision ? value / scale.scale : value * scale.multiplier;
  float result = 0;
  auto* codes = static_cast<std::uint8_t*>(weight_.codes.raw_data());
  dispatch_element<E4m3, E2m3, E3m2, E2m1>(*scheme.element, "CodeGrid", [&]<class Element>() {
    const std::uint8_t code = Element::encode(scaled);
    result = Element::decode(code) * scale.scale;
    if (weight_.codes.dtype() != DType::f4_e2m1) {
      codes[at] = code;
      return;
    }
    std::uint8_t& pair = codes[at / 2];
    pair = static_cast<std::uint8_t>(at % 2 == 0 ? (pair & 0xF0) | code : (pair & 0x0F) | code << 4);
  });
  return result;
}

}  // namespace quench
