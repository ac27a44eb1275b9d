// Casts to and from the codes of a quantized KV cache.

#include "core/ops/kv_cache/cache_codes.h"

#include "core/cpu/kv_cache/code_rows.h"
#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// NaN, above infinity by its bits, is kept.
template <class T>
float largest_magnitude(const T* x, std::int64_t n) {
  std::uint32_t most = 0;
  for (std::int64_t d = 0; d < n; ++d)
    most = std::max(most, std::bit_cast<std::uint32_t>(static_cast<float>(x[d])) & kF32MagnitudeMask);
  return std::bit_cast<float>(most);
}

template <class T, class Element>
void append(const AppendCodesArgs& args) {
  const std::int64_t heads = args.scales.size(-1), width = args.cache.size(1), dim = width / heads;
  const std::int64_t capacity = args.cache.size(0), row_stride = args.values.stride(0);
  const bool dynamic = scale_stride(args.scales) > 0;
  const auto* positions = args.positions.data<std::int32_t>();
  const T* values = args.values.data<T>();
  auto* codes = static_cast<std::uint8_t*>(args.cache.raw_data());
  float* scales = args.scales.data<float>();
  parallel_ranges(args.values.size(0), args.values.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = positions[i];
      if (row < 0 || row >= capacity) continue;
      for (std::int64_t head = 0; head < heads; ++head) {
        const T* x = values + i * row_stride + head * dim;
        float& scale = scales[row * scale_stride(args.scales) + head];
        if (dynamic) scale = cache_scale<Element>(largest_magnitude(x, dim));
        const float by = scale;
        std::uint8_t* out = codes + row * width + head * dim;
        for (std::int64_t d = 0; d < dim; ++d) out[d] = cache_code<Element>(static_cast<float>(x[d]), by);
      }
    }
  });
}

template <class T, class Element>
void decode(const DecodeCodesArgs& args) {
  const std::int64_t heads = args.scales.size(-1), width = args.cache.size(1), dim = width / heads;
  const auto* codes = static_cast<const std::uint8_t*>(args.cache.raw_data());
  const float* scales = args.scales.data<float>();
  T* out = args.out.data<T>();
  const std::int32_t* rows = args.rows.defined() ? args.rows.data<std::int32_t>() : nullptr;
  parallel_ranges(args.out.size(0), args.out.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = rows != nullptr ? rows[i] : i;
      for (std::int64_t head = 0; head < heads; ++head) {
        const float scale = scales[row * scale_stride(args.scales) + head];
        const std::uint8_t* from = codes + row * width + head * dim;
        T* to = out + i * width + head * dim;
        for (std::int64_t d = 0; d < dim; ++d) to[d] = T(cached_value<Element>(from[d], scale));
      }
    }
  });
}

void append_codes_kernel(const AppendCodesArgs& args) {
  dispatch_cache_codes(args.cache.dtype(), [&]<class Element, class>() {
    args.values.dtype() == DType::f32 ? append<float, Element>(args) : append<bfloat16, Element>(args);
  });
}

void decode_codes_kernel(const DecodeCodesArgs& args) {
  dispatch_cache_codes(args.cache.dtype(), [&]<class Element, class>() {
    args.out.dtype() == DType::f32 ? decode<float, Element>(args) : decode<bfloat16, Element>(args);
  });
}

QUENCH_CPU_KERNEL(append_codes_slot, append_codes_kernel);
QUENCH_CPU_KERNEL(decode_codes_slot, decode_codes_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
