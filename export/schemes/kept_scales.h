#pragma once
// Scales and codes of MXFP4 weights that training has not changed.

#include "export/schemes/quantized_weight.h"

namespace quench {

// Blocks of `weight` [N,K] f32 or bf16 that the E8M0 scales `stored` u8 [N, K / 32] represent exactly in e2m1 get
// these scales and their codes in `quantized`, of the same values: weights that were read from MXFP4 and not changed
// keep their bytes. No change for undefined `stored` or another element format.
void keep_block_scales(const Tensor& weight, const Tensor& stored, const QuantizedWeight& quantized);

}  // namespace quench
