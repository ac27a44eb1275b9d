#pragma once
// Casts between keys and values and the codes of a quantized KV cache (core/number/cache_code.h). A row of the cache
// holds keys of all KV heads, then values: H = 2 kv_heads vectors of D elements, each with a scale.
//
// scales, f32: [H] by calibration, or [capacity, H], written with the codes of each row (dynamic).

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AppendCodesArgs {
  Tensor values;     // [N, H * D], f32/bf16, contiguous last axis
  Tensor positions;  // i32 [N]: rows of the cache, distinct; out of range: skipped
  Tensor cache;      // out, [capacity, H * D], f8_e4m3 or i8
  Tensor scales;     // [H]; or out, [capacity, H]
};

struct DecodeCodesArgs {
  Tensor cache;   // [capacity, H * D]
  Tensor scales;  // [H] or [capacity, H]
  Tensor out;     // out, [N, H * D], f32/bf16; the product in f32, one rounding
  Tensor rows{};  // i32 [N]: rows of the cache; undefined: all of them in order
};

extern constinit KernelSlot<AppendCodesArgs> append_codes_slot;
extern constinit KernelSlot<DecodeCodesArgs> decode_codes_slot;

void append_codes(const AppendCodesArgs& args);
void decode_codes(const DecodeCodesArgs& args);

// Elements from the scales of one row to those of the next; 0: shared by all.
[[nodiscard]] inline std::int64_t scale_stride(const Tensor& scales) {
  return scales.rank() == 2 ? scales.size(1) : 0;
}
// Throws invalid_argument naming `op` for other shapes and dtypes than above.
void check_cache_codes(std::string_view op, const Tensor& cache, const Tensor& scales);

}  // namespace quench
