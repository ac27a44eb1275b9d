#pragma once
// LoRA gradients. Adapter p owns columns c of the output and columns r (its rank) of the hidden values:
//   dhidden[:, r] = scale * dY[:, c] B_p            dB_p (+)= gradient_scale * dY[:, c]^T hidden[:, r]

#include <vector>

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct AdapterGradientPiece {
  Tensor b;                     // [n,rank], dtype of dy, contiguous
  Tensor db{};                  // out, [n,rank], dtype of dy or f32, contiguous; optional
  std::int64_t column = 0;      // first of n in dy
  std::int64_t rank_begin = 0;  // first of rank in hidden and dhidden
  float scale = 1.0f;
  float gradient_scale = 1.0f;
  bool accumulate = false;  // adds to db
};

struct AdapterGradientsArgs {
  Tensor dy;                                 // [M,N], f32/bf16; contiguous columns, as all operands
  Tensor hidden;                             // [M,R], dtype of dy
  Tensor dhidden;                            // out, [M,R], dtype of dy; other columns are not written
  std::vector<AdapterGradientPiece> pieces;  // columns and ranks ascending, disjoint
};

// "adapter gradients 16384x3072+48 bf16": MxN+R, dtype of dy.
[[nodiscard]] std::string op_label(const AdapterGradientsArgs& args);

extern constinit KernelSlot<AdapterGradientsArgs> adapter_gradients_slot;

// f32 accumulators, one rounding, with a device kernel; else adapter_gradients_in_products().
void adapter_gradients(const AdapterGradientsArgs& args);

// Two GEMMs per adapter, each rounded; unchecked operands.
void adapter_gradients_in_products(const AdapterGradientsArgs& args);

}  // namespace quench
