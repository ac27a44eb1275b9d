#include "core/ops/quantize/nf4.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/ops/op_checks.h"

namespace quench {

constinit KernelSlot<Nf4EncodeArgs> nf4_encode_slot("nf4_encode");
constinit KernelSlot<Nf4DequantizeArgs> nf4_dequantize_slot("nf4_dequantize");

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
  const std::int64_t blocks = args.x.shape.numel() / kBlock;
  check_tensor(kOp, "codes", args.x.codes, {args.x.shape.numel() / 2}, DType::u8);
  check_tensor(kOp, "scales", args.x.scales, {blocks}, DType::i8);
  check_tensor(kOp, "factors", args.x.factors, {(blocks + kScaleBlock - 1) / kScaleBlock}, DType::f32);
  check_tensor(kOp, "mean", args.x.mean, {1}, DType::f32);
  QUENCH_CHECK(args.out.defined() && is_f32_or_bf16(args.out.dtype()), "{}: out is {}, expected f32 or bf16", kOp,
               args.out.describe());
  check_tensor(kOp, "out", args.out, args.x.shape, args.out.dtype());
  check_contiguous(kOp, "out", args.out);
  check_same_device(kOp, {&args.x.codes, &args.x.scales, &args.x.factors, &args.x.mean, &args.out});
  if (args.out.numel() > 0) nf4_dequantize_slot(args.out.device().type, args);
}

}  // namespace quench
