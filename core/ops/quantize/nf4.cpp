#include "core/ops/quantize/nf4.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/op_checks.h"

namespace quench {

constinit KernelSlot<Nf4DequantizeArgs> nf4_dequantize_slot("nf4_dequantize");

namespace {

constexpr std::int64_t kBlock = Nf4::kBlockSize;
constexpr std::int64_t kScaleBlock = Nf4::kScaleBlockSize;

// Returns the block's amax.
template <class T>
float encode_block(const T* x, std::uint8_t* codes) {
  float most = 0.0f;
  for (std::int64_t i = 0; i < kBlock; ++i) most = std::max(most, std::abs(float(x[i])));
  const float divisor = most > 0.0f ? most : 1.0f;
  for (std::int64_t i = 0; i < kBlock; i += 2)
    codes[i / 2] =
        static_cast<std::uint8_t>(Nf4::encode(float(x[i]) / divisor) << 4 | Nf4::encode(float(x[i + 1]) / divisor));
  return most;
}

void quantize_scales(const std::vector<float>& scales, const Nf4Tensor& out) {
  double sum = 0;
  for (const float scale : scales) sum += double(scale);
  const auto mean = static_cast<float>(scales.empty() ? 0.0 : sum / double(scales.size()));
  *out.mean.data<float>() = mean;
  const auto count = static_cast<std::int64_t>(scales.size());
  for (std::int64_t group = 0; group * kScaleBlock < count; ++group) {
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
  const Device where = x.device().is_meta() ? x.device() : Device{};
  const auto make = [&](const Shape& shape, DType dtype, Device device) { return Tensor::empty(shape, dtype, device); };
  Nf4Tensor out{x.shape(), make({x.numel() / 2}, DType::u8, where), make({blocks}, DType::i8, where),
                make({(blocks + kScaleBlock - 1) / kScaleBlock}, DType::f32, where), make({1}, DType::f32, where)};
  if (where.is_meta()) return out;
  const Tensor host = x.to(Device{});
  std::vector<float> scales(static_cast<std::size_t>(blocks));
  dispatch<float, bfloat16>(x.dtype(), "quantize_nf4", [&]<class T>() {
    const T* values = host.data<T>();
    auto* codes = out.codes.data<std::uint8_t>();
#pragma omp parallel for schedule(static)
    for (std::int64_t b = 0; b < blocks; ++b)
      scales[std::size_t(b)] = encode_block(values + b * kBlock, codes + b * kBlock / 2);
    const bool finite = std::all_of(values, values + x.numel(), [](T value) { return std::isfinite(float(value)); });
    QUENCH_CHECK_AS(ErrorCode::nonfinite, finite, "quantize_nf4: {} holds NaN or infinity", x.describe());
  });
  quantize_scales(scales, out);
  for (Tensor* part : {&out.codes, &out.scales, &out.factors, &out.mean}) *part = part->to(x.device());
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
