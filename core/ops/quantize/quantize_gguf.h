#pragma once
// Quantization to the blocks of a GGUF type.

#include <span>
#include <string_view>

#include "core/device/kernel_slot.h"
#include "core/gguf_types/block_format.h"
#include "core/tensor/tensor.h"

namespace quench {

// blocks = bytes as in files, those of scales that overflow f16 with an infinite scale. The same on CPU and GPU, bit
// for bit.
struct QuantizeGgufArgs {
  Tensor x;             // f32/bf16 [R,C], contiguous
  BlockType type;       // divides C
  Tensor importance{};  // f32 [C]: factors of squared errors, not negative; undefined: 1
  Tensor blocks;        // u8 [R, C / elements * bytes], contiguous
};

extern constinit KernelSlot<QuantizeGgufArgs> quantize_gguf_slot;

// Throws unsupported where can_round_gguf() (round_gguf.h) is false.
void quantize_gguf(const QuantizeGgufArgs& args);

// Blocks of a weight f32 or bf16 [N,K] on the CPU, also on the CPU; K is a multiple of the block size; of a type that
// is not read only. `importance`: a non-negative factor of the squared error of each of K columns, or empty. `device`:
// where the work runs if it has a kernel for the type, in pieces of rows that take at most 512 MiB there; else the CPU,
// rows in parallel. The result depends on neither. Throws nonfinite naming `name` (the tensor) and the value for which
// a scale overflows, invalid_argument for an importance of another length, of negative or non-finite values.
[[nodiscard]] Tensor quantize_blocks(const Tensor& weight, BlockType type, std::string_view name,
                                     std::span<const float> importance = {}, Device device = {});

}  // namespace quench
