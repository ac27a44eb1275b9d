#pragma once
// GEMMs through cuBLASLt, one algorithm per problem and device.

#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {

// False, with nothing launched, without an algorithm. The stream's device is current.
[[nodiscard]] bool run_gemm(const GemmProblem& problem, const GemmCall& call, Stream stream);

// Whether cuBLASLt's heuristic returns an algorithm. Addresses are not read. The device is current.
[[nodiscard]] bool has_algorithm(const GemmProblem& problem, const GemmCall& call, Device device);

}  // namespace quench::cuda
