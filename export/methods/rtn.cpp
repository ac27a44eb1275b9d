#include "export/methods/rtn.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/number/float8.h"
#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/quantize_gguf.h"
#include "core/ops/quantize/quantize_int.h"
#include "export/schemes/finite_values.h"

namespace quench {
namespace {

// Scales rounded to their stored dtype.
Tensor stored(const Tensor& scales, DType dtype) {
  if (dtype == DType::f32) return scales;
  const Tensor rounded = Tensor::empty(scales.shape(), dtype);
  cast({scales, rounded});
  return rounded;
}

QuantizedWeight integers(const Tensor& weight, const OperandScheme& scheme, DType scale_dtype) {
  const IntQuantized made = quantize_int(
      weight,
      {.bits = scheme.bits, .mapping = scheme.mapping, .group_size = scheme.group_size, .scale_dtype = scale_dtype});
  return {scheme, weight.shape(), made.codes, stored(made.scales.scales, scale_dtype), made.scales.zero_points, {}};
}

// Rows and columns that share a scale.
struct Tile {
  std::int64_t rows, columns;
};

Tile tile_of(const OperandScheme& scheme, const Shape& shape) {
  switch (scheme.sharing) {
    case ScaleSharing::tensor: return {shape[0], shape[1]};
    case ScaleSharing::row: return {1, shape[1]};
    case ScaleSharing::group: return {1, scheme.group_size};
    case ScaleSharing::block: return {scheme.group_size, scheme.group_size};
  }
  return {1, 1};
}

Shape scales_shape(const OperandScheme& scheme, const Shape& shape, const Tile& tile) {
  if (scheme.sharing == ScaleSharing::tensor) return {};
  return {(shape[0] + tile.rows - 1) / tile.rows, (shape[1] + tile.columns - 1) / tile.columns};
}

template <class T, class S>
void cast_tile(const T* w, std::uint8_t* codes, std::int64_t rows, std::int64_t columns, std::int64_t stride,
               S& scale_out) {
  float amax = 0.0f;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) amax = std::max(amax, std::abs(float(w[r * stride + c])));
  const float chosen = float(S(amax / E4m3::kMax));
  const float scale = chosen > 0.0f ? chosen : 1.0f;
  scale_out = S(scale);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) codes[r * stride + c] = E4m3::encode(float(w[r * stride + c]) / scale);
}

QuantizedWeight float8(const Tensor& weight, const OperandScheme& scheme) {
  const Shape shape = weight.shape();
  const Tile tile = tile_of(scheme, shape);
  QuantizedWeight out{scheme,
                      shape,
                      Tensor::empty(shape, DType::f8_e4m3),
                      Tensor::empty(scales_shape(scheme, shape, tile), weight.dtype()),
                      {},
                      {}};
  auto* codes = static_cast<std::uint8_t*>(out.codes.raw_data());
  const std::int64_t across = (shape[1] + tile.columns - 1) / tile.columns, tiles = out.scales.numel();
  dispatch<float, bfloat16>(weight.dtype(), "rtn", [&]<class T>() {
    const T* w = weight.data<T>();
    T* scales = out.scales.data<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t row = i / across * tile.rows, column = i % across * tile.columns;
      const std::int64_t at = row * shape[1] + column;
      cast_tile(w + at, codes + at, std::min(tile.rows, shape[0] - row), std::min(tile.columns, shape[1] - column),
                shape[1], scales[i]);
    }
  });
  return out;
}

}  // namespace

QuantizedWeight rtn(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                    std::optional<DType> scale_dtype, std::optional<float> shared_amax,
                    std::span<const float> importance, Device device) {
  const std::string problem = shape_problem(scheme, weight.size(0), weight.size(1));
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{} cannot be quantized: {}", name, problem);
  QUENCH_CHECK_AS(ErrorCode::nonfinite, is_finite(weight), "{} cannot be quantized: it holds NaN or infinity", name);
  if (scheme.blocks)
    return {scheme, weight.shape(), quantize_blocks(weight, *scheme.blocks, name, importance, device), {}, {}, {}};
  if (!scheme.element) return integers(weight, scheme, scale_dtype.value_or(weight.dtype()));
  if (scheme.scale == ScaleForm::high_precision) return float8(weight, scheme);
  QuantTensor made;
  if (scheme.scale == ScaleForm::e8m0) {
    made = quantize_mx(weight, {.element = *scheme.element});
  } else {
    Tensor most = amax(weight, Granularity::tensor);
    if (shared_amax) most = Tensor::from_values<float>({}, std::array{*shared_amax});
    made = quantize_nvfp4(weight, nvfp4_global_scale(most));
  }
  Tensor global = made.global_scale();
  return {scheme, weight.shape(), made.payload(), made.scales(), {}, global};
}

QuantizedWeight round_under_scales(const Tensor& weight, const OperandScheme& scheme, const Tensor& scales,
                                   std::string_view name, std::optional<DType> scale_dtype) {
  const std::string problem = shape_problem(scheme, weight.size(0), weight.size(1));
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{} cannot be quantized: {}", name, problem);
  QUENCH_CHECK_AS(ErrorCode::nonfinite, is_finite(weight), "{} cannot be quantized: it holds NaN or infinity", name);
  QUENCH_CHECK(!scheme.element && !scheme.blocks && scheme.symmetric(), "{}: given scales are those of integers", name);
  const Tensor kept = stored(scales, scale_dtype.value_or(weight.dtype()));
  Tensor rounded = scales;
  if (kept.dtype() != DType::f32) {
    rounded = Tensor::empty(scales.shape(), DType::f32);
    cast({kept, rounded});
  }
  const IntQuantOptions options{.bits = scheme.bits, .mapping = scheme.mapping, .group_size = scheme.group_size};
  return {scheme, weight.shape(), cast_int(weight, {rounded, {}}, options), kept, {}, {}};
}

}  // namespace quench
