#include "core/ops/quantize/round_gguf.h"

#include <algorithm>
#include <array>

namespace quench {
namespace {

// By quantization and dequantization.
void round_gguf_host(const RoundGgufArgs& args) {
  const BlockFormat& format = block_format(args.type);
  const std::int64_t per_row = args.x.size(1) / format.elements, blocks = args.x.numel() / format.elements;
  const float* importance = args.importance.defined() ? args.importance.data<float>() : nullptr;
  dispatch<float, bfloat16>(args.x.dtype(), "round_gguf", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::array<float, kMostBlockElements> values;
      std::array<std::uint8_t, kMostBlockBytes> block;
      const std::int64_t first = b * format.elements;
      std::copy(x + first, x + first + format.elements, values.begin());
      format.quantize(values.data(), importance != nullptr ? importance + b % per_row * format.elements : nullptr,
                      block.data());
      dequantize_block(format, block.data(), values.data());
      for (std::int64_t i = 0; i < format.elements; ++i) out[first + i] = T(values[static_cast<std::size_t>(i)]);
    }
  });
}

[[maybe_unused]] const bool round_gguf_registered = round_gguf_slot.fill(DeviceType::cpu, &round_gguf_host);

}  // namespace
}  // namespace quench
