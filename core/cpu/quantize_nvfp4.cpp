// NVFP4 casts: blocks of 16 along the last axis.

#include <cmath>
#include <cstring>

#include "core/cpu/quantize_common.h"

namespace quench {
namespace {

constexpr std::int64_t kBlock = kNvfp4BlockSize;

void nvfp4_global_scale_cpu(const Nvfp4GlobalScaleArgs& args) {
  *args.scale.data<float>() = nvfp4_global_scale(*args.amax.data<float>());
}

template <class T>
void cast_blocks(const T* x, std::uint8_t* out, std::uint8_t* scales, std::int64_t blocks, const float* global) {
#pragma omp parallel for schedule(static) if (blocks * kBlock >= kParallelElements)
  for (std::int64_t b = 0; b < blocks; ++b) {
    const T* from = x + b * kBlock;
    std::uint8_t* to = out + b * kBlock / 2;
    const float amax = magnitude_value(max_magnitude(from, kBlock));
    const Nvfp4BlockScale scale = global ? nvfp4_block_scale(amax, *global) : nvfp4_block_scale(amax);
    scales[b] = scale.code;
    if (std::isnan(scale.multiplier)) {
      std::memset(to, pack_nibbles(E2m1::kNanCode, E2m1::kNanCode), kBlock / 2);
      continue;
    }
    std::uint8_t codes[kBlock];
    for (int i = 0; i < kBlock; ++i) codes[i] = E2m1::encode(static_cast<float>(from[i]) * scale.multiplier);
    for (int i = 0; i < kBlock / 2; ++i) to[i] = pack_nibbles(codes[2 * i], codes[2 * i + 1]);
  }
}

void nvfp4_cast_cpu(const Nvfp4CastArgs& args) {
  const Tensor& global = args.out.global_scale();
  auto* out = static_cast<std::uint8_t*>(args.out.payload().raw_data());
  auto* scales = static_cast<std::uint8_t*>(args.out.scales().raw_data());
  dispatch<float, bfloat16>(args.x.dtype(), "nvfp4_cast", [&]<class T>() {
    cast_blocks(args.x.data<T>(), out, scales, args.x.numel() / kBlock,
                global.defined() ? global.data<float>() : nullptr);
  });
}

QUENCH_CPU_KERNEL(nvfp4_global_scale_slot, nvfp4_global_scale_cpu);
QUENCH_CPU_KERNEL(nvfp4_cast_slot, nvfp4_cast_cpu);

}  // namespace
}  // namespace quench
