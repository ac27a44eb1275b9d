#include "core/ops/quantize/quantize_int.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<IntScalesArgs> int_scales_slot("int_scales");
constinit KernelSlot<IntCastArgs> int_cast_slot("int_cast");
constinit KernelSlot<IntDequantizeArgs> int_dequantize_slot("int_dequantize");
constinit KernelSlot<FakeQuantizeIntArgs> fake_quantize_int_slot("fake_quantize_int");
constinit KernelSlot<ZeroMaskedArgs> zero_masked_slot("zero_masked");

namespace {

void check_values(std::string_view op, std::string_view name, const Tensor& x) {
  QUENCH_CHECK(x.defined() && x.rank() >= 1 && is_f32_or_bf16(x.dtype()),
               "{}: {} is {}, expected f32 or bf16 of rank 1 or more", op, name, x.describe());
  check_contiguous(op, name, x);
}

bool has_zero_points(const IntQuantOptions& options) {
  return options.mapping == IntMapping::asymmetric || options.mapping == IntMapping::float_zero_point;
}

Shape scales_shape(std::string_view op, const Shape& x, const IntQuantOptions& options) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i + 1 < x.rank(); ++i) sizes.push_back(x[i]);
  sizes.push_back(int_groups(op, x[-1], options));
  return Shape(sizes);
}

void check_scales(std::string_view op, const Shape& x, const Tensor& scales, const Tensor& zero_points,
                  const IntQuantOptions& options) {
  const Shape shape = scales_shape(op, x, options);
  check_tensor(op, "scales", scales, shape, DType::f32);
  check_contiguous(op, "scales", scales);
  QUENCH_CHECK(zero_points.defined() == has_zero_points(options), "{}: zero points are {} for this mapping", op,
               zero_points.defined() ? "not wanted" : "missing");
  if (!zero_points.defined()) return;
  check_tensor(op, "zero_points", zero_points, shape, DType::f32);
  check_contiguous(op, "zero_points", zero_points);
}

void check_codes(std::string_view op, const Tensor& codes, const Shape& shape) {
  check_tensor(op, "codes", codes, shape, DType::i8);
  check_contiguous(op, "codes", codes);
}

IntScales empty_scales(std::string_view op, const Tensor& x, const IntQuantOptions& options) {
  const Shape shape = scales_shape(op, x.shape(), options);
  return {Tensor::empty(shape, DType::f32, x.device()),
          has_zero_points(options) ? Tensor::empty(shape, DType::f32, x.device()) : Tensor()};
}

}  // namespace

std::int64_t int_groups(std::string_view op, std::int64_t columns, const IntQuantOptions& options) {
  QUENCH_CHECK(options.bits >= 1 && options.bits <= 8, "{}: {} bits, expected 1 to 8", op, options.bits);
  const DType scale = options.scale_dtype.value_or(DType::f32);
  QUENCH_CHECK(is_f32_or_bf16(scale) || scale == DType::f16, "{}: scales of {}, expected f32, bf16 or f16", op,
               to_string(scale));
  QUENCH_CHECK(options.group_size >= 0, "{}: group size {}", op, options.group_size);
  if (options.group_size == 0 || columns == 0) return columns == 0 ? 0 : 1;
  QUENCH_CHECK(columns % options.group_size == 0, "{}: groups of {} do not divide rows of {}", op, options.group_size,
               columns);
  return columns / options.group_size;
}

IntScales int_scales(const Tensor& x, const IntQuantOptions& options) {
  check_values("int_scales", "x", x);
  IntScales made = empty_scales("int_scales", x, options);
  if (x.numel() > 0) int_scales_slot(x.device().type, {x, made.scales, made.zero_points, options});
  return made;
}

Tensor cast_int(const Tensor& x, const IntScales& scales, const IntQuantOptions& options) {
  check_values("cast_int", "x", x);
  check_scales("cast_int", x.shape(), scales.scales, scales.zero_points, options);
  check_same_device("cast_int", {&x, &scales.scales, &scales.zero_points});
  Tensor codes = Tensor::empty(x.shape(), DType::i8, x.device());
  if (x.numel() > 0) int_cast_slot(x.device().type, {x, scales.scales, scales.zero_points, codes, options});
  return codes;
}

IntQuantized quantize_int(const Tensor& x, const IntQuantOptions& options) {
  IntScales scales = int_scales(x, options);
  Tensor codes = cast_int(x, scales, options);
  return {std::move(codes), std::move(scales)};
}

Tensor dequantize_int(const Tensor& codes, const IntScales& scales, DType to, const IntQuantOptions& options) {
  check_codes("dequantize_int", codes, codes.shape());
  check_scales("dequantize_int", codes.shape(), scales.scales, scales.zero_points, options);
  check_same_device("dequantize_int", {&codes, &scales.scales, &scales.zero_points});
  QUENCH_CHECK(is_f32_or_bf16(to), "dequantize_int: to {}, expected f32 or bf16", to_string(to));
  Tensor out = Tensor::empty(codes.shape(), to, codes.device());
  if (codes.numel() > 0)
    int_dequantize_slot(codes.device().type, {codes, scales.scales, scales.zero_points, out, options});
  return out;
}

Shape range_mask_shape(const Shape& x) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i + 1 < x.rank(); ++i) sizes.push_back(x[i]);
  sizes.push_back((x[-1] + 7) / 8);
  return Shape(sizes);
}

void fake_quantize_int(const FakeQuantizeIntArgs& args) {
  constexpr std::string_view kOp = "fake_quantize_int";
  check_values(kOp, "x", args.x);
  check_tensor(kOp, "out", args.out, args.x.shape(), args.x.dtype());
  check_contiguous(kOp, "out", args.out);
  if (args.scales.defined())
    check_scales(kOp, args.x.shape(), args.scales, args.zero_points, args.options);
  else
    (void)int_groups(kOp, args.x.size(-1), args.options);
  if (args.mask.defined()) {
    check_tensor(kOp, "mask", args.mask, range_mask_shape(args.x.shape()), DType::u8);
    check_contiguous(kOp, "mask", args.mask);
  }
  check_same_device(kOp, {&args.x, &args.out, &args.mask, &args.scales, &args.zero_points});
  if (args.x.numel() > 0) fake_quantize_int_slot(args.x.device().type, args);
}

void zero_masked(const ZeroMaskedArgs& args) {
  check_values("zero_masked", "x", args.x);
  check_tensor("zero_masked", "mask", args.mask, range_mask_shape(args.x.shape()), DType::u8);
  check_contiguous("zero_masked", "mask", args.mask);
  check_same_device("zero_masked", {&args.x, &args.mask});
  if (args.x.numel() > 0) zero_masked_slot(args.x.device().type, args);
}

}  // namespace quench
