#include "core/ops/quantize/nf4.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<Nf4EncodeArgs> nf4_encode_slot("nf4_encode");
constinit KernelSlot<Nf4DequantizeArgs> nf4_dequantize_slot("nf4_dequantize");
constinit KernelSlot<Nf4CastArgs> nf4_cast_slot("nf4_cast");

namespace {

constexpr std::int64_t kBlock = Nf4::kBlockSize;
constexpr std::int64_t kScaleBlock = Nf4::kScaleBlockSize;

void quantize_scales(std::span<const float> scales, const Nf4Tensor& out) {
  double sum = 0;
  for (const float scale : scales) sum += double(scale);
  const auto mean = static_cast<float>(scales.empty() ? 0.0 : sum / double(scales.size()));
  *out.mean.data<float>() = mean;
  const auto count = static_cast<std::int64_t>(scales.size());
  const std::int64_t groups = (count + kScaleBlock - 1) / kScaleBlock;
#pragma omp parallel for schedule(static) if (groups > 64)
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t begin = group * kScaleBlock, end = std::min(count, begin + kScaleBlock);
    float most = 0.0f;
    for (std::int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(scales[std::size_t(i)] - mean));
    const float factor = most > 0.0f ? 128.0f / most : 1.0f;
    out.factors.data<float>()[group] = factor;
    for (std::int64_t i = begin; i < end; ++i) {
      const float rounded = std::nearbyint((scales[std::size_t(i)] - mean) * factor);
      out.scales.data<std::int8_t>()[i] = static_cast<std::int8_t>(std::clamp(rounded, -128.0f, 127.0f));
    }
  }
}

void check_nf4(std::string_view op, const Nf4Tensor& x) {
  const std::int64_t blocks = x.shape.numel() / kBlock;
  check_tensor(op, "codes", x.codes, {x.shape.numel() / 2}, DType::u8);
  check_tensor(op, "scales", x.scales, {blocks}, DType::i8);
  check_tensor(op, "factors", x.factors, {(blocks + kScaleBlock - 1) / kScaleBlock}, DType::f32);
  check_tensor(op, "mean", x.mean, {1}, DType::f32);
}

void check_nf4_matrix(std::string_view op, const Nf4Tensor& x) {
  check_nf4(op, x);
  QUENCH_CHECK(x.shape.rank() == 2, "{}: x has shape {}, expected a matrix", op, x.shape.to_string());
}

Tensor f32_values(const Nf4Tensor& x) {
  const Tensor values = Tensor::empty(x.shape, DType::f32, x.codes.device());
  dequantize_nf4({x, values});
  return values;
}

// Whole factors cover them for every number of columns that 64 divides.
constexpr std::int64_t kRowsAtOnce = kScaleBlock;

Nf4Tensor rows_of(const Nf4Tensor& x, std::int64_t begin, std::int64_t rows) {
  const std::int64_t blocks = x.shape[1] / kBlock, first = begin * blocks, count = rows * blocks;
  return {{rows, x.shape[1]},
          x.codes.narrow(0, first * kBlock / 2, count * kBlock / 2),
          x.scales.narrow(0, first, count),
          x.factors.narrow(0, first / kScaleBlock, (count + kScaleBlock - 1) / kScaleBlock),
          x.mean};
}

}  // namespace

Nf4Tensor quantize_nf4(const Tensor& x) {
  QUENCH_CHECK(x.defined() && is_f32_or_bf16(x.dtype()), "quantize_nf4: x is {}, expected f32 or bf16", x.describe());
  check_contiguous("quantize_nf4", "x", x);
  QUENCH_CHECK(x.numel() % kBlock == 0, "quantize_nf4: blocks of {} do not divide {}", kBlock, x.describe());
  const std::int64_t blocks = x.numel() / kBlock;
  const Device device = x.device(), where = device.is_meta() ? device : Device{};
  Nf4Tensor out{x.shape(), Tensor::empty({x.numel() / 2}, DType::u8, device), Tensor::empty({blocks}, DType::i8, where),
                Tensor::empty({(blocks + kScaleBlock - 1) / kScaleBlock}, DType::f32, where),
                Tensor::empty({1}, DType::f32, where)};
  if (device.is_meta()) return out;
  const Tensor amax = Tensor::empty({blocks}, DType::f32, device);
  if (blocks > 0) nf4_encode_slot(device.type, {x, out.codes, amax});
  const Tensor host = amax.to(Device{});
  const std::span scales(host.data<float>(), static_cast<std::size_t>(blocks));
  QUENCH_CHECK_AS(ErrorCode::nonfinite, std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); }),
                  "quantize_nf4: {} holds NaN or infinity", x.describe());
  quantize_scales(scales, out);
  for (Tensor* part : {&out.scales, &out.factors, &out.mean}) *part = part->to(device);
  return out;
}

void dequantize_nf4(const Nf4DequantizeArgs& args) {
  constexpr std::string_view kOp = "dequantize_nf4";
  check_nf4(kOp, args.x);
  QUENCH_CHECK(args.out.defined() && is_f32_or_bf16(args.out.dtype()), "{}: out is {}, expected f32 or bf16", kOp,
               args.out.describe());
  check_tensor(kOp, "out", args.out, args.x.shape, args.out.dtype());
  check_contiguous(kOp, "out", args.out);
  check_same_device(kOp, {&args.x.codes, &args.x.scales, &args.x.factors, &args.x.mean, &args.out});
  if (args.out.numel() > 0) nf4_dequantize_slot(args.out.device().type, args);
}

Tensor nf4_amax(const Nf4Tensor& x, Granularity granularity) {
  constexpr std::string_view kOp = "nf4_amax";
  check_nf4_matrix(kOp, x);
  if (x.shape[1] % kBlock != 0) return amax(f32_values(x), granularity);
  const QuantFormat format = code_format(ElementFormat::e4m3, granularity);
  const Tensor most = Tensor::zeros(format.scales_shape(x.shape), DType::f32, x.codes.device());
  for (std::int64_t row = 0; row < x.shape[0]; row += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, x.shape[0] - row);
    const Tensor values = f32_values(rows_of(x, row, rows));
    if (granularity == Granularity::tensor)
      raise_amax(values, most);
    else if (granularity == Granularity::row)
      amax_slot(values.device().type, {values, most.narrow(0, row, rows), granularity});
    else
      (void)quantize_float8_rows(values, ElementFormat::e4m3, false, most);
  }
  return most;
}

QuantTensor cast_nf4_float8(const Nf4Tensor& x, const Tensor& scale, Granularity granularity, Orientation orientation) {
  constexpr std::string_view kOp = "cast_nf4_float8";
  check_nf4_matrix(kOp, x);
  const bool by_tensor = granularity == Granularity::tensor;
  const Granularity other = orientation == Orientation::natural ? Granularity::row : Granularity::column;
  QUENCH_CHECK(by_tensor || granularity == other, "{}: {} codes with scales by {}, expected tensor or {}", kOp,
               orientation == Orientation::natural ? "natural" : "transposed", to_string(granularity),
               to_string(other));
  if (x.shape[1] % kBlock != 0) return cast_float8(f32_values(x), scale, ElementFormat::e4m3, granularity, orientation);
  const QuantFormat format = code_format(ElementFormat::e4m3, granularity, orientation);
  const Tensor payload = Tensor::empty(format.payload_shape(x.shape), DType::f8_e4m3, x.codes.device());
  const QuantTensor out(format, x.shape, DType::f32, payload, scale);
  check_same_device(kOp, {&x.codes, &x.scales, &x.factors, &x.mean, &payload, &scale});
  if (x.shape.numel() > 0) nf4_cast_slot(payload.device().type, {x, out});
  return out;
}

}  // namespace quench
