#include "core/ops/quantize/nf4.h"

#include <cmath>
#include <limits>

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Codes and the amax of a block.
template <class T>
float encode_block(const T* x, std::uint8_t* codes) {
  constexpr int kBlock = Nf4::kBlockSize;
  float values[kBlock], most = 0.0f;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    values[i] = static_cast<float>(x[i]);
    most = std::max(most, std::abs(values[i]));
    finite &= std::isfinite(values[i]);
  }
  const float divisor = most > 0.0f ? most : 1.0f;
  std::int32_t found[kBlock] = {};
  for (int i = 0; i < kBlock; ++i) values[i] /= divisor;
  for (std::uint8_t lower = 0; lower < 15; ++lower) {
    const float midpoint = Nf4::midpoint(lower);
    for (int i = 0; i < kBlock; ++i) found[i] += values[i] > midpoint ? 1 : 0;
  }
  for (int i = 0; i < kBlock; i += 2) codes[i / 2] = static_cast<std::uint8_t>(found[i] << 4 | found[i + 1]);
  return finite ? most : std::numeric_limits<float>::infinity();
}

void nf4_encode_cpu(const Nf4EncodeArgs& args) {
  constexpr std::int64_t kBlock = Nf4::kBlockSize;
  auto* codes = args.codes.data<std::uint8_t>();
  float* amax = args.amax.data<float>();
  dispatch<float, bfloat16>(args.x.dtype(), "nf4_encode", [&]<class T>() {
    const T* x = args.x.data<T>();
    parallel_ranges(args.amax.numel(), args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) amax[b] = encode_block(x + b * kBlock, codes + b * kBlock / 2);
    });
  });
}

void nf4_dequantize_cpu(const Nf4DequantizeArgs& args) {
  constexpr std::int64_t kBlock = Nf4::kBlockSize;
  const std::int64_t blocks = args.x.shape.numel() / kBlock;
  const auto* codes = args.x.codes.data<std::uint8_t>();
  const auto* scales = args.x.scales.data<std::int8_t>();
  const auto* factors = args.x.factors.data<float>();
  const float mean = *args.x.mean.data<float>();
  dispatch<float, bfloat16>(args.out.dtype(), "nf4_dequantize", [&]<class T>() {
    T* out = args.out.data<T>();
    parallel_ranges(blocks, args.out.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        const float scale = static_cast<float>(scales[b]) / factors[b / Nf4::kScaleBlockSize] + mean;
        T values[16];
        for (std::uint8_t code = 0; code < 16; ++code) values[code] = T(Nf4::decode(code) * scale);
        for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; i += 2) {
          out[i] = values[codes[i / 2] >> 4];
          out[i + 1] = values[codes[i / 2] & 15];
        }
      }
    });
  });
}

QUENCH_CPU_KERNEL(nf4_encode_slot, nf4_encode_cpu);
QUENCH_CPU_KERNEL(nf4_dequantize_slot, nf4_dequantize_cpu);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
