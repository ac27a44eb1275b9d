#pragma once
// Values as they come back from float8 codes under the scales of post-training quantization.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = e4m3(x / scale) * scale with scale = amax / 448 (1 for an amax of 0), rounded to `scale_dtype` (f32 or bf16);
// quotient, saturation and product in f32, one rounding to the dtype of x. x f32 or bf16 [R,C], contiguous; amax f32
// [R,1] of rows or [] of the tensor (core/ops/quantize/quantize.h), undefined: that of each row, found on the way; out
// like x, may be x. A NaN or infinity makes the
// values under its scale NaN. Throws invalid_argument naming the tensor that does not fit.
struct FakeQuantizeFloat8Args {
  Tensor x, amax, out;
  DType scale_dtype = DType::f32;
};
extern constinit KernelSlot<FakeQuantizeFloat8Args> fake_quantize_float8_slot;
void fake_quantize_float8(const FakeQuantizeFloat8Args& args);

}  // namespace quench
