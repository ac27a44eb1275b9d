#pragma once
// Matrix products through cuBLASLt: for each problem the algorithm that was chosen, found once per device.

#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {

// False if cuBLASLt has no algorithm for the problem; then nothing has run. The stream's device is current.
[[nodiscard]] bool run_gemm(const GemmProblem& problem, const GemmCall& call, Stream stream);

}  // namespace quench::cuda
