#pragma once
// Chooses the algorithm of a matrix product by running cuBLASLt's candidates.

#include <optional>

#include "core/cuda/gemm_plan.h"

namespace quench::cuda {

// True for products that take long enough to be timed.
[[nodiscard]] bool is_worth_timing(const GemmProblem& problem);

// cuBLASLt's own first choice: the same for a problem on every run. Throws unsupported, with the problem, when there is
// none.
[[nodiscard]] cublasLtMatmulAlgo_t first_gemm_algorithm(cublasLtHandle_t handle, const GemmPlan& plan);

// Times the candidates on the operands of `args` (real data: a GPU at its power limit runs zeros faster) and returns
// the fastest. Waits for the stream. args.c is left alone when the product adds to it, for which scratch of its size
// is allocated; nothing without room for that. Throws as first_gemm_algorithm.
[[nodiscard]] std::optional<cublasLtMatmulAlgo_t> fastest_gemm_algorithm(cublasLtHandle_t handle, const GemmPlan& plan,
                                                                         const GemmArgs& args, void* workspace,
                                                                         Stream stream);

}  // namespace quench::cuda
