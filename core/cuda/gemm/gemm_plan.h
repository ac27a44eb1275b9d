#pragma once
// cuBLASLt descriptors of one GEMM problem.

#include <vector>

#include "core/cuda/common/cuda_error.h"
#include "core/cuda/gemm/cublaslt_library.h"
#include "core/cuda/gemm/gemm_problem.h"

namespace quench::cuda {

// Workspace limit in bytes: NVIDIA's recommendation for Hopper.
inline constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;

// Device addresses and factors of one call.
struct GemmCall {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* addend = nullptr;  // matrix of the beta term; c's address unless the problem has a separate addend
  const void* bias = nullptr;
  // Dequantization scales, counts as in GemmProblem::scales.
  const float *scale_a = nullptr, *scale_b = nullptr;
  float alpha = 1.0f, beta = 0.0f;
};

// Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B is cuBLASLt's first operand.
class GemmPlan {
 public:
  explicit GemmPlan(const GemmProblem& problem);

  // Required before candidates() and supports(): cuBLASLt checks scaled operands with scale addresses set.
  void bind_scales(const GemmCall& call) const;

  // Candidates, best first by cuBLASLt's estimate. Split-K reduction in f32 only.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, int most) const;
  // Default-initialized algorithm `id` for these types. False if there is none.
  [[nodiscard]] bool init(cublasLtHandle_t handle, int id, cublasLtMatmulAlgo_t& algorithm) const;
  // False if the algorithm does not support the problem.
  [[nodiscard]] bool supports(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const;

  // cuBLASLt status.
  cublasStatus_t run(cublasLtHandle_t handle, const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm,
                     void* workspace, cudaStream_t stream) const;

  [[nodiscard]] const GemmProblem& problem() const noexcept { return problem_; }

 private:
  GemmProblem problem_;
  // Never destroyed.
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatrixLayout_t addend_ = nullptr;
};

}  // namespace quench::cuda
