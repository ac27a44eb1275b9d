#pragma once
// Fake quantization in the grid of a GGUF block type, for QAT.

#include <string_view>

#include "core/device/kernel_slot.h"
#include "core/gguf_types/block_format.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = the values that a reader of the file computes for quantize_gguf(x, type, importance), rounded to the dtype of
// x: scales as stored. The same on CPU and GPU, bit for bit. Where a scale overflows f16, values are not finite.
struct RoundGgufArgs {
  Tensor x;             // f32/bf16 [R,C], contiguous
  BlockType type;       // divides C
  Tensor importance{};  // f32 [C]: factors of squared errors, not negative; undefined: 1
  Tensor out;           // like x; may be x
};

extern constinit KernelSlot<RoundGgufArgs> round_gguf_slot;

// Throws unsupported where can_round_gguf() is false.
void round_gguf(const RoundGgufArgs& args);

// Whether the type is written, and the device has a kernel for it: the CPU for all, GPUs for all but those of codebooks
// (IQ2, IQ3) and MXFP4.
[[nodiscard]] bool can_round_gguf(BlockType type, DeviceType device) noexcept;

// Throws for rows that the type's blocks do not divide, a type without a kernel, an importance of another length.
void check_gguf_rows(std::string_view op, const Tensor& x, BlockType type, const Tensor& importance);

}  // namespace quench
