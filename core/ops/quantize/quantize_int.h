#pragma once
// Integer quantization (1 to 8 bits) by groups of the last axis (affine_int.h), shared by PTQ and QAT.
//
// Values: f32/bf16, contiguous, rank >= 1. Scales: each step rounded to the dtype of x, stored in f32. Codes per
// IntDivision; value = (code - zero_point) * scale in f32, rounded once, to nearest even. IntMapping::float_zero_point:
// code = clamp(round((x - (zero_point + lowest * scale)) / scale) + lowest), value = code * scale + zero_point.
// Mappings of few levels: codes of affine_int.h, IntDivision::reciprocal always. NaN/Inf makes its group NaN. The group
// size divides the last axis.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/number/affine_int.h"
#include "core/tensor/tensor.h"

namespace quench {

// The two differ near ties.
enum class IntDivision : std::uint8_t {
  reciprocal,  // clamp(round(x * (1 / scale)) + zero_point): TorchAO
  quotient,    // clamp(round(x / scale + zero_point)): compressed-tensors
};

struct IntQuantOptions {
  int bits = 4;
  IntMapping mapping = IntMapping::symmetric;
  std::int64_t group_size = 0;  // along the last axis; 0: whole row
  // Rounding of scales: f32, bf16 or f16; absent: none.
  std::optional<DType> scale_dtype = std::nullopt;
  IntDivision division = IntDivision::reciprocal;
};

[[nodiscard]] std::int64_t int_groups(std::string_view op, std::int64_t columns, const IntQuantOptions& options);

// f32 [.., C / group_size].
struct IntScales {
  Tensor scales;
  Tensor zero_points{};  // undefined if always 0
};
struct IntScalesArgs {
  Tensor x, scales, zero_points;
  IntQuantOptions options;
};
extern constinit KernelSlot<IntScalesArgs> int_scales_slot;
[[nodiscard]] IntScales int_scales(const Tensor& x, const IntQuantOptions& options);

struct IntCastArgs {
  Tensor x, scales, zero_points, codes;
  IntQuantOptions options;
};
extern constinit KernelSlot<IntCastArgs> int_cast_slot;
[[nodiscard]] Tensor cast_int(const Tensor& x, const IntScales& scales, const IntQuantOptions& options);

struct IntQuantized {
  Tensor codes;  // i8
  IntScales scales;
};
[[nodiscard]] IntQuantized quantize_int(const Tensor& x, const IntQuantOptions& options);

struct IntDequantizeArgs {
  Tensor codes, scales, zero_points, out;
  IntQuantOptions options;
};
extern constinit KernelSlot<IntDequantizeArgs> int_dequantize_slot;
[[nodiscard]] Tensor dequantize_int(const Tensor& codes, const IntScales& scales, DType to,
                                    const IntQuantOptions& options);

// out: dequantized, dtype of x; may alias x. mask: u8 [.., ceil(C / 8)], optional; bit i % 8 of byte i / 8 is set if
// element i's rounded code is in range, of IntMapping::binary if |x| <= scale (straight-through estimator).
struct FakeQuantizeIntArgs {
  Tensor x, out, mask;
  Tensor scales{}, zero_points{};  // undefined: computed here
  IntQuantOptions options;
};
extern constinit KernelSlot<FakeQuantizeIntArgs> fake_quantize_int_slot;
void fake_quantize_int(const FakeQuantizeIntArgs& args);
[[nodiscard]] Shape range_mask_shape(const Shape& x);

// 0 where the mask's bit is; f32/bf16 [.., C].
struct ZeroMaskedArgs {
  Tensor x, mask;
};
extern constinit KernelSlot<ZeroMaskedArgs> zero_masked_slot;
void zero_masked(const ZeroMaskedArgs& args);

}  // namespace quench
