#include "core/tensor/quant_tensor.h"

#include <utility>

namespace quench {
namespace {

Shape with_last_axes_swapped(const Shape& shape) {
  Shape result = shape;
  std::swap(result[-1], result[-2]);
  return result;
}

void check_format(const QuantFormat& format) {
  const bool block = format.granularity == Granularity::block;
  QUENCH_CHECK(block == (format.block_size > 0), "quantized format {}: a block size goes with granularity block",
               format.to_string());
  const bool scale_fits = format.scale_dtype == DType::f32 ||
                          (block && (format.scale_dtype == DType::f8_e8m0 || format.scale_dtype == DType::f8_e4m3));
  QUENCH_CHECK(scale_fits, "quantized format {}: scales of dtype {}; f32, or for blocks f8_e8m0 or f8_e4m3",
               format.to_string(), to_string(format.scale_dtype));
}

int least_rank(const QuantFormat& format) {
  if (format.granularity == Granularity::column || format.orientation == Orientation::transposed) return 2;
  return format.granularity == Granularity::tensor ? 0 : 1;
}

}  // namespace

std::string_view to_string(Granularity granularity) noexcept {
  switch (granularity) {
    case Granularity::tensor: return "tensor";
    case Granularity::row: return "row";
    case Granularity::column: return "column";
    case Granularity::block: return "block";
  }
  return "unknown";
}

QuantFormat code_format(ElementFormat element, Granularity granularity, Orientation orientation) noexcept {
  return {.element = element,
          .granularity = granularity,
          .orientation = orientation,
          .scale_direction = element == ElementFormat::int8 ? ScaleDirection::decode : ScaleDirection::encode};
}

std::string QuantFormat::to_string() const {
  std::string text = fmt::format("{} by {}", quench::to_string(element), quench::to_string(granularity));
  if (granularity == Granularity::block) text += fmt::format(" of {}", block_size);
  if (orientation == Orientation::transposed) text += ", transposed";
  return text;
}

Shape QuantFormat::payload_shape(const Shape& logical) const {
  check_format(*this);
  QUENCH_CHECK(logical.rank() >= least_rank(*this), "quantized format {} needs rank {} or more, not {}", to_string(),
               least_rank(*this), logical.to_string());
  const Shape stored = orientation == Orientation::transposed ? with_last_axes_swapped(logical) : logical;
  if (granularity == Granularity::block)
    QUENCH_CHECK(stored[-1] % block_size == 0, "quantized format {}: blocks do not divide the axis of {} in {}",
                 to_string(), stored[-1], logical.to_string());
  return stored;
}

Shape QuantFormat::scales_shape(const Shape& logical) const {
  Shape shape = payload_shape(logical);
  switch (granularity) {
    case Granularity::tensor: return {};
    case Granularity::row:
      shape = logical;
      shape[-1] = 1;
      return shape;
    case Granularity::column:
      shape = logical;
      shape[-2] = 1;
      return shape;
    case Granularity::block: shape[-1] /= block_size; return shape;
  }
  return shape;
}

QuantTensor::QuantTensor(const QuantFormat& format, const Shape& logical, DType source_dtype, Tensor payload,
                         Tensor scales, Tensor global_scale)
    : format_(format),
      shape_(logical),
      source_dtype_(source_dtype),
      payload_(std::move(payload)),
      scales_(std::move(scales)),
      global_scale_(std::move(global_scale)) {
  check_tensor("quantized tensor", "payload", payload_, format.payload_shape(logical), payload_dtype(format.element));
  check_tensor("quantized tensor", "scales", scales_, format.scales_shape(logical), format.scale_dtype);
  QUENCH_CHECK(payload_.is_contiguous() && scales_.is_contiguous(),
               "quantized tensor: payload {} and scales {} must be contiguous", payload_.describe(),
               scales_.describe());
  QUENCH_CHECK(payload_.device() == scales_.device(), "quantized tensor: payload {}, scales {}", payload_.describe(),
               scales_.describe());
  if (!global_scale_.defined()) return;
  QUENCH_CHECK(format.scale_dtype == DType::f8_e4m3, "quantized tensor: {} with {} scales has no global scale",
               format.to_string(), to_string(format.scale_dtype));
  check_tensor("quantized tensor", "global scale", global_scale_, {1}, DType::f32);
  QUENCH_CHECK(global_scale_.device() == payload_.device(), "quantized tensor: payload {}, global scale {}",
               payload_.describe(), global_scale_.describe());
}

QuantTensor QuantTensor::empty(const QuantFormat& format, const Shape& logical, DType source_dtype, Device device) {
  return {format, logical, source_dtype,
          Tensor::empty(format.payload_shape(logical), payload_dtype(format.element), device),
          Tensor::empty(format.scales_shape(logical), format.scale_dtype, device)};
}

QuantTensor QuantTensor::transposed_view() const {
  QUENCH_CHECK(defined() && shape_.rank() >= 2 && !global_scale_.defined(),
               "transposed_view: {} is no one-level quantized matrix", describe());
  QuantFormat format = format_;
  format.orientation = format.orientation == Orientation::natural ? Orientation::transposed : Orientation::natural;
  if (format_.granularity == Granularity::row) format.granularity = Granularity::column;
  if (format_.granularity == Granularity::column) format.granularity = Granularity::row;
  const Shape logical = with_last_axes_swapped(shape_);
  return {format, logical, source_dtype_, payload_, scales_.view(format.scales_shape(logical))};
}

std::size_t QuantTensor::nbytes() const {
  if (!defined()) return 0;
  return payload_.nbytes() + scales_.nbytes() + (global_scale_.defined() ? global_scale_.nbytes() : 0);
}

std::string QuantTensor::describe() const {
  if (!defined()) return "undefined quantized tensor";
  return fmt::format("{} as {} on {}", shape_.to_string(), format_.to_string(), device().to_string());
}

}  // namespace quench
