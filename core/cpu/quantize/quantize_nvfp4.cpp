
#include <cmath>

#include "core/cpu/quantize/quantize_common.h"

namespace quench {
namespace {

constexpr std::int64_t kBlock = kNvfp4BlockSize;

void nvfp4_global_scale_cpu(const Nvfp4GlobalScaleArgs& args) {
  *args.scale.data<float>() = nvfp4_global_scale(*args.amax.data<float>());
}

// Scales of many blocks at once: vectorized divisions.
template <class T>
void cast_group(const T* x, std::uint8_t* out, std::uint8_t* scales, std::int64_t blocks, const float* global) {
  float amax[kBlocksAtOnce], multiplier[kBlocksAtOnce];
  for (std::int64_t b = 0; b < blocks; ++b) amax[b] = magnitude_value(max_magnitude(x + b * kBlock, kBlock));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const Nvfp4BlockScale scale = global ? nvfp4_block_scale(amax[b], *global) : nvfp4_block_scale(amax[b]);
    scales[b] = scale.code;
    multiplier[b] = scale.multiplier;
  }
  float scaled[kBlocksAtOnce * kBlock];
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i) scaled[i] = static_cast<float>(x[i]) * multiplier[b];
  std::uint8_t codes[kBlocksAtOnce * kBlock];
  for (std::int64_t i = 0; i < blocks * kBlock; ++i) codes[i] = E2m1::encode(scaled[i]);
  for (std::int64_t b = 0; b < blocks; ++b)
    if (std::isnan(multiplier[b])) std::memset(codes + b * kBlock, E2m1::kNanCode, kBlock);
  pack_codes(codes, blocks * kBlock, out);
}

template <class T>
void cast_blocks(const T* x, std::uint8_t* out, std::uint8_t* scales, std::int64_t blocks, const float* global) {
#pragma omp parallel for schedule(static) if (blocks * kBlock >= kParallelElements)
  for (std::int64_t b = 0; b < blocks; b += kBlocksAtOnce)
    cast_group(x + b * kBlock, out + b * kBlock / 2, scales + b, std::min(kBlocksAtOnce, blocks - b), global);
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
