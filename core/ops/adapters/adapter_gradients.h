#pragma once
// Gradients of a low-rank update of a linear layer's weight (LoRA). Of piece p, with columns c of the layer's output
// and columns r of its hidden values:
//   dhidden[:, r] = scale * dY[:, c] B_p            dB_p (+)= gradient_scale * dY[:, c]^T hidden[:, r]
// Both read the same columns of dY, the largest operand by far.

#include <vector>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AdapterGradientPiece {
  Tensor b;                     // [n,rank] in the dtype of dy, contiguous
  Tensor db;                    // out, [n,rank] in the dtype of dy or f32, contiguous; undefined: not wanted
  std::int64_t column = 0;      // the first of n columns of dy
  std::int64_t rank_begin = 0;  // the first of `rank` columns of hidden and dhidden
  float scale = 1.0f;
  float gradient_scale = 1.0f;
  bool accumulate = false;  // db's old values are added
};

struct AdapterGradientsArgs {
  Tensor dy;                                 // [M,N], f32 or bf16; rows may be strided, columns contiguous
  Tensor hidden;                             // [M,R], dtype of dy, likewise
  Tensor dhidden;                            // out, [M,R], dtype of dy, likewise; columns of no piece are left alone
  std::vector<AdapterGradientPiece> pieces;  // in the order of their columns, apart from each other, as are their ranks
};

// "adapter gradients 16384x3072+48 bf16": M x N + R, dtype of dy.
[[nodiscard]] std::string op_label(const AdapterGradientsArgs& args);

extern constinit KernelSlot<AdapterGradientsArgs> adapter_gradients_slot;

// Accumulates in f32, one rounding to each output's dtype, where a device has a kernel for the operands; elsewhere as
// adapter_gradients_in_products(). Throws invalid_argument naming the shapes when they do not fit.
void adapter_gradients(const AdapterGradientsArgs& args);

// The same by gemm(), two for each piece, with its roundings. For checked operands.
void adapter_gradients_in_products(const AdapterGradientsArgs& args);

}  // namespace quench
