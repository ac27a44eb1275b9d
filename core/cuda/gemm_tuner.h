#pragma once
// Chooses the algorithm of a matrix product by running cuBLASLt's candidates.

#include "core/cuda/gemm_plan.h"

namespace quench::cuda {

// Times the candidates on the operands of `args` (real data: a GPU at its power limit runs zeros faster) and returns
// the fastest. Waits for the stream. args.c is left alone when the product adds to it, for which scratch of its size
// is allocated; without room for that, and for products too small to time, cuBLASLt's first candidate is taken.
// Throws unsupported, with the problem, when there is no candidate.
[[nodiscard]] cublasLtMatmulAlgo_t choose_gemm_algorithm(cublasLtHandle_t handle, const GemmPlan& plan,
                                                         const GemmArgs& args, void* workspace, Stream stream);

}  // namespace quench::cuda
