#include "core/ops/quantize/quantize.h"

namespace quench {

constinit KernelSlot<AmaxArgs> amax_slot("amax");
constinit KernelSlot<Float8ScaleArgs> float8_scale_slot("float8_scale");
constinit KernelSlot<Float8CastArgs> float8_cast_slot("float8_cast");
constinit KernelSlot<Float8RowsArgs> float8_rows_slot("float8_rows");
constinit KernelSlot<MxCastArgs> mx_cast_slot("mx_cast");
constinit KernelSlot<Nvfp4GlobalScaleArgs> nvfp4_global_scale_slot("nvfp4_global_scale");
constinit KernelSlot<Nvfp4CastArgs> nvfp4_cast_slot("nvfp4_cast");
constinit KernelSlot<DequantizeArgs> dequantize_slot("dequantize");

namespace {

void check_input(std::string_view op, const Tensor& x) {
  QUENCH_CHECK(x.defined() && (x.dtype() == DType::f32 || x.dtype() == DType::bf16),
               "{}: x is {}, expected f32 or bf16", op, x.describe());
  QUENCH_CHECK(x.is_contiguous(), "{}: x ({} with strides {}) must be contiguous", op, x.describe(),
               x.strides().to_string());
}

void check_float8(std::string_view op, ElementFormat element, Granularity granularity) {
  QUENCH_CHECK(is_8_bit(element), "{}: element format {}, expected e4m3, e5m2 or int8", op, to_string(element));
  QUENCH_CHECK(granularity != Granularity::block, "{}: granularity block, expected tensor, row or column", op);
  QUENCH_CHECK(element != ElementFormat::int8 || granularity != Granularity::tensor,
               "{}: int8 with a scale per tensor, expected one per row or column", op);
}

void check_maximum(std::string_view op, const Tensor& maximum, const Tensor& x) {
  check_tensor(op, "the maximum", maximum, {}, DType::f32);
  QUENCH_CHECK(maximum.device() == x.device(), "{}: the maximum is on {}, x on {}", op, maximum.device().to_string(),
               x.device().to_string());
}

}  // namespace

Tensor amax(const Tensor& x, Granularity granularity) {
  check_input("amax", x);
  check_float8("amax", ElementFormat::e4m3, granularity);
  const Shape shape = code_format(ElementFormat::e4m3, granularity).scales_shape(x.shape());
  AmaxArgs args{x, Tensor::empty(shape, DType::f32, x.device()), granularity};
  if (args.amax.numel() > 0) amax_slot(x.device().type, args);
  return args.amax;
}

void raise_amax(const Tensor& x, const Tensor& maximum) {
  check_input("raise_amax", x);
  check_maximum("raise_amax", maximum, x);
  if (x.numel() > 0) amax_slot(x.device().type, {x, maximum, Granularity::tensor, true});
}

Tensor float8_scale(const Tensor& amax, ElementFormat element, bool power_of_two, DType source) {
  check_tensor("float8_scale", "amax", amax, amax.shape(), DType::f32);
  QUENCH_CHECK(amax.is_contiguous(), "float8_scale: amax {} must be contiguous", amax.describe());
  check_float8("float8_scale", element, Granularity::row);
  QUENCH_CHECK(source == DType::f32 || source == DType::bf16, "float8_scale: values of {}, expected f32 or bf16",
               to_string(source));
  Float8ScaleArgs args{amax, Tensor::empty_like(amax), element, power_of_two, source};
  if (amax.numel() > 0) float8_scale_slot(amax.device().type, args);
  return args.scale;
}

QuantTensor cast_float8(const Tensor& x, const Tensor& scale, ElementFormat element, Granularity granularity,
                        Orientation orientation, const Float8Rounding& rounding, const Tensor& amax) {
  check_input("cast_float8", x);
  check_float8("cast_float8", element, granularity);
  if (amax.defined()) check_maximum("cast_float8", amax, x);
  const bool transposed = orientation == Orientation::transposed;
  QUENCH_CHECK(!transposed || granularity != Granularity::row,
               "cast_float8: scales by row with a transposed payload; by tensor or column");
  QuantFormat format = code_format(element, granularity);
  format.orientation = orientation;
  const Tensor payload = Tensor::empty(format.payload_shape(x.shape()), payload_dtype(element), x.device());
  const QuantTensor out(format, x.shape(), x.dtype(), payload, scale);
  Float8CastArgs args{x, transposed ? QuantTensor() : out, transposed ? out : QuantTensor(), rounding, amax};
  if (x.numel() > 0) float8_cast_slot(x.device().type, args);
  return out;
}

Float8Pair cast_float8_pair(const Tensor& x, const Tensor& scale, ElementFormat element, const Float8Rounding& rounding,
                            const Tensor& amax) {
  check_input("cast_float8_pair", x);
  check_float8("cast_float8_pair", element, Granularity::tensor);
  if (amax.defined()) check_maximum("cast_float8_pair", amax, x);
  const auto make = [&](Orientation orientation) {
    QuantFormat format = code_format(element, Granularity::tensor);
    format.orientation = orientation;
    return QuantTensor(format, x.shape(), x.dtype(),
                       Tensor::empty(format.payload_shape(x.shape()), payload_dtype(element), x.device()), scale);
  };
  Float8CastArgs args{x, make(Orientation::natural), make(Orientation::transposed), rounding, amax};
  if (x.numel() > 0) float8_cast_slot(x.device().type, args);
  return {args.out, args.transposed};
}

QuantTensor quantize_float8_rows(const Tensor& x, ElementFormat element, bool power_of_two_scale,
                                 const Tensor& column_amax, const Float8Rounding& rounding) {
  check_input("quantize_float8_rows", x);
  check_float8("quantize_float8_rows", element, Granularity::row);
  if (column_amax.defined()) {
    check_tensor("quantize_float8_rows", "column_amax", column_amax,
                 code_format(element, Granularity::column).scales_shape(x.shape()), DType::f32);
    QUENCH_CHECK(column_amax.is_contiguous() && column_amax.device() == x.device(),
                 "quantize_float8_rows: column_amax {} must be contiguous, on the device of x {}",
                 column_amax.describe(), x.describe());
  }
  Float8RowsArgs args{x, QuantTensor::empty(code_format(element, Granularity::row), x.shape(), x.dtype(), x.device()),
                      power_of_two_scale, column_amax, rounding};
  if (args.out.scales().numel() > 0) float8_rows_slot(x.device().type, args);
  return args.out;
}

QuantTensor quantize_float8(const Tensor& x, const Float8Options& options) {
  const auto& [element, granularity, power_of_two, rounding] = options;
  if (granularity == Granularity::row) return quantize_float8_rows(x, element, power_of_two, Tensor(), rounding);
  const Tensor scale = float8_scale(amax(x, granularity), element, power_of_two, x.dtype());
  return cast_float8(x, scale, element, granularity, Orientation::natural, rounding);
}

QuantTensor quantize_mx(const Tensor& x, const MxOptions& options) {
  check_input("quantize_mx", x);
  const QuantFormat format{.element = options.element,
                           .granularity = Granularity::block,
                           .orientation = options.orientation,
                           .block_size = kMxBlockSize,
                           .scale_dtype = DType::f8_e8m0,
                           .scale_direction = ScaleDirection::decode};
  MxCastArgs args{x, QuantTensor::empty(format, x.shape(), x.dtype(), x.device()), options.mode};
  if (x.numel() > 0) mx_cast_slot(x.device().type, args);
  return args.out;
}

Tensor nvfp4_global_scale(const Tensor& amax) {
  check_tensor("nvfp4_global_scale", "amax", amax, amax.shape(), DType::f32);
  QUENCH_CHECK(amax.numel() == 1, "nvfp4_global_scale: amax is {}, expected one element", amax.describe());
  Nvfp4GlobalScaleArgs args{amax, Tensor::empty({1}, DType::f32, amax.device())};
  nvfp4_global_scale_slot(amax.device().type, args);
  return args.scale;
}

QuantTensor quantize_nvfp4(const Tensor& x, const Tensor& global_scale) {
  check_input("quantize_nvfp4", x);
  const QuantFormat format{.element = ElementFormat::e2m1,
                           .granularity = Granularity::block,
                           .block_size = kNvfp4BlockSize,
                           .scale_dtype = DType::f8_e4m3,
                           .scale_direction = ScaleDirection::decode};
  const Tensor payload = Tensor::empty(format.payload_shape(x.shape()), DType::f4_e2m1, x.device());
  const Tensor scales = Tensor::empty(format.scales_shape(x.shape()), DType::f8_e4m3, x.device());
  Nvfp4CastArgs args{x, QuantTensor(format, x.shape(), x.dtype(), payload, scales, global_scale)};
  if (x.numel() > 0) nvfp4_cast_slot(x.device().type, args);
  return args.out;
}

Tensor dequantize(const QuantTensor& x, DType to) {
  QUENCH_CHECK(x.defined(), "dequantize: x is undefined");
  QUENCH_CHECK(to == DType::f32 || to == DType::bf16, "dequantize: {} to {}, expected f32 or bf16", x.describe(),
               to_string(to));
  const QuantFormat& format = x.format();
  const bool by_scale = format.scale_dtype == DType::f32 && format.granularity != Granularity::block &&
                        format.orientation == Orientation::natural &&
                        (format.scale_direction == ScaleDirection::decode) == (format.element == ElementFormat::int8);
  const bool by_block = format.scale_dtype != DType::f32 && format.scale_direction == ScaleDirection::decode;
  QUENCH_CHECK_AS(ErrorCode::unsupported, by_scale || by_block, "dequantize: {} with {} scales is not supported",
                  x.describe(), to_string(format.scale_dtype));
  DequantizeArgs args{x, Tensor::empty(x.shape(), to, x.device())};
  if (args.out.numel() > 0) dequantize_slot(x.device().type, args);
  return args.out;
}

}  // namespace quench
