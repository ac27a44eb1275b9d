#pragma once
// Float8 fake quantization with PTQ scales.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = e4m3(x / scale) * scale, scale = amax / 448 (1 if amax is 0) rounded to scale_dtype (f32/bf16); f32 arithmetic,
// one rounding. x: f32/bf16 [R,C], contiguous; out may alias x. amax: f32 [R,1] rowwise or [] tensorwise; undefined:
// rowwise, computed here. NaN/Inf makes values under its scale NaN.
struct FakeQuantizeFloat8Args {
  Tensor x, amax, out;
  DType scale_dtype = DType::f32;
};
extern constinit KernelSlot<FakeQuantizeFloat8Args> fake_quantize_float8_slot;
void fake_quantize_float8(const FakeQuantizeFloat8Args& args);

}  // namespace quench
