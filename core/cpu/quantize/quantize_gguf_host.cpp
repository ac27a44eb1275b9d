#include <vector>

#include "core/ops/quantize/quantize_gguf.h"

namespace quench {
namespace {

void quantize_gguf_host(const QuantizeGgufArgs& args) {
  const BlockFormat& format = block_format(args.type);
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1), blocks = columns / format.elements;
  const float* importance = args.importance.defined() ? args.importance.data<float>() : nullptr;
  dispatch<float, bfloat16>(args.x.dtype(), "quantize_gguf", [&]<class T>() {
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* from = args.x.data<T>() + row * columns;
      const std::vector<float> x(from, from + columns);
      for (std::int64_t b = 0; b < blocks; ++b)
        format.quantize(x.data() + b * format.elements,
                        importance != nullptr ? importance + b * format.elements : nullptr,
                        args.blocks.data<std::uint8_t>() + (row * blocks + b) * format.bytes);
    }
  });
}

[[maybe_unused]] const bool quantize_gguf_registered = quantize_gguf_slot.fill(DeviceType::cpu, &quantize_gguf_host);

}  // namespace
}  // namespace quench
