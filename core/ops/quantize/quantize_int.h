#pragma once
// Casts to integers of 1 to 8 bits and back, by groups of the last axis; fake quantization is both at once. Formulas:
// core/number/affine_int.h. Post-training quantization and quantization-aware training use these ops, so that a model
// is trained with what it is exported to.
//
// Values are f32 or bf16, contiguous, of any rank from 1. Scales are chosen in the dtype of x, each step rounded, and
// are then f32 numbers; codes and values are computed in f32: codes as IntDivision says, value = (code - zero_point) *
// scale, rounded once to its dtype. Rounding is to nearest, ties to even. With IntMapping::float_zero_point the code is
// clamp(round((x - zero_point) / scale)) by way of the lowest value of the range, the value code * scale + zero_point.
// A NaN or infinity makes the values of its whole group NaN. Every op throws invalid_argument naming the tensor that
// does not fit; a group size that does not divide the last axis too.

#include <optional>

#include "core/device/kernel_slot.h"
#include "core/number/affine_int.h"
#include "core/tensor/tensor.h"

namespace quench {

// How a value is divided by its scale. The two differ where the quotient lies next to a tie, as that of the largest
// negative value of a symmetric group always does.
enum class IntDivision : std::uint8_t {
  reciprocal,  // clamp(round(x * (1 / scale)) + zero_point): TorchAO
  quotient,    // clamp(round(x / scale + zero_point)): compressed-tensors
};

struct IntQuantOptions {
  int bits = 4;
  IntMapping mapping = IntMapping::symmetric;
  std::int64_t group_size = 0;  // elements of the last axis that share a scale; 0: the whole row (or token)
  // Scales are rounded to this dtype (f32, bf16, f16) before codes are made of them; absent: as they are.
  std::optional<DType> scale_dtype = std::nullopt;
  IntDivision division = IntDivision::reciprocal;
};

// Groups of a row of `columns` elements; throws invalid_argument naming `op` where they do not come out even.
[[nodiscard]] std::int64_t int_groups(std::string_view op, std::int64_t columns, const IntQuantOptions& options);

// Of a tensor [.., C]: f32 [.., C / group_size] each.
struct IntScales {
  Tensor scales;
  Tensor zero_points;  // undefined for mappings whose zero point is 0
};
struct IntScalesArgs {
  Tensor x, scales, zero_points;
  IntQuantOptions options;
};
extern constinit KernelSlot<IntScalesArgs> int_scales_slot;
[[nodiscard]] IntScales int_scales(const Tensor& x, const IntQuantOptions& options);

// Codes i8 of x's shape, with scales made before.
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

// f32 or bf16 of the codes' shape.
struct IntDequantizeArgs {
  Tensor codes, scales, zero_points, out;
  IntQuantOptions options;
};
extern constinit KernelSlot<IntDequantizeArgs> int_dequantize_slot;
[[nodiscard]] Tensor dequantize_int(const Tensor& codes, const IntScales& scales, DType to,
                                    const IntQuantOptions& options);

// out = the value of x's code, in x's dtype; out may be x. `mask`, if defined, u8 [.., ceil(C / 8)]: bit i % 8 of byte
// i / 8 says whether element i was within the codes' range, which its rounded and not yet clamped code decides: where
// the gradient of a straight-through estimator passes. Scales are chosen on the way, or given.
struct FakeQuantizeIntArgs {
  Tensor x, out, mask;
  Tensor scales, zero_points;  // given scales; undefined: they are chosen
  IntQuantOptions options;
};
extern constinit KernelSlot<FakeQuantizeIntArgs> fake_quantize_int_slot;
void fake_quantize_int(const FakeQuantizeIntArgs& args);
// The shape of the mask of a tensor.
[[nodiscard]] Shape range_mask_shape(const Shape& x);

// Writes 0 where the mask's bit is 0: f32 or bf16 [.., C].
struct ZeroMaskedArgs {
  Tensor x, mask;
};
extern constinit KernelSlot<ZeroMaskedArgs> zero_masked_slot;
void zero_masked(const ZeroMaskedArgs& args);

}  // namespace quench
