#pragma once
// Small-M GEMMs for decode on tensor cores: bf16 activations, bf16 or packed weights, read once.

#include <optional>

#include "core/ops/gated_activation.h"
#include "core/ops/packed_linear.h"

namespace quench {
struct AddedNorm;
}

namespace quench::cuda {

// bf16 x; 64-byte chunks of weight rows lie in one group.
[[nodiscard]] bool small_m_gemm_supports(const Tensor& x, const PackedMatrix& weight);
// `gated`: gated_packed_linear, `norm`: normed_linear; for one row.
void small_m_gemm(const PackedLinearArgs& args, std::optional<GatedActivation> gated, const AddedNorm* norm = nullptr);

// y = x W^T (+ bias), bf16 weight; `gated`: gated_linear. False, without a launch, if unsupported. Shapes as in gemv.h
// and gated_linear.h.
class OpLaunch;
[[nodiscard]] bool small_m_gemm_values(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& bias,
                                       std::optional<GatedActivation> gated, const OpLaunch& launch,
                                       const AddedNorm* norm = nullptr);

}  // namespace quench::cuda
