#include "core/ops/quantize/nf4.h"

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

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

QUENCH_CPU_KERNEL(nf4_dequantize_slot, nf4_dequantize_cpu);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
