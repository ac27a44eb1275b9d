#pragma once
// Small-M GEMMs on tensor cores for decode: bf16 activations, weights in bf16 or packed quantized values. Memory bound:
// reads the weight once.

#include "core/ops/packed_linear.h"

namespace quench {
struct AddedNorm;
}

namespace quench::cuda {

// Support of small_m_gemm(): bf16 x; each 64-byte chunk of a weight row lies in one quantization group.
[[nodiscard]] bool small_m_gemm_supports(const Tensor& x, const PackedMatrix& weight);
// `gated`: gated_packed_linear, `norm`: normed_linear; both for one row of x.
void small_m_gemm(const PackedLinearArgs& args, bool gated, const AddedNorm* norm = nullptr);

// y = x W^T (+ bias) with a bf16 weight; `gated`: gated_linear. False, without a launch, if unsupported. Shapes as in
// gemv.h and gated_linear.h.
class OpLaunch;
[[nodiscard]] bool small_m_gemm_values(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& bias,
                                       bool gated, const OpLaunch& launch, const AddedNorm* norm = nullptr);

}  // namespace quench::cuda
