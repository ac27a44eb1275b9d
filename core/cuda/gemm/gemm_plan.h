#pragma once
// A matrix product as cuBLASLt sees it: descriptors of one problem, made once, and a run with an algorithm.

#include <vector>

#include "core/cuda/common/cuda_error.h"
#include "core/cuda/gemm/cublaslt_library.h"
#include "core/cuda/gemm/gemm_problem.h"

namespace quench::cuda {

// Scratch that every algorithm may use, in bytes: what NVIDIA recommends for Hopper.
inline constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;

// Addresses on the device and factors of one call.
struct GemmCall {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* addend = nullptr;  // what beta multiplies: c's address where the problem has no other
  const void* bias = nullptr;
  // What code products are multiplied by, as many as GemmProblem::scales says.
  const float *scale_a = nullptr, *scale_b = nullptr;
  float alpha = 1.0f, beta = 0.0f;
};

// Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B is cuBLASLt's first operand.
class GemmPlan {
 public:
  explicit GemmPlan(const GemmProblem& problem);

  // cuBLASLt finds algorithms for scaled operands only where it sees addresses of scales: called before the two below.
  void bind_scales(const GemmCall& call) const;

  // Candidates, best first by cuBLASLt's own estimate. Sums are combined in f32 only.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, int most) const;
  // Algorithm `id` for operands of these types, nothing of it chosen yet. False if there is none.
  [[nodiscard]] bool init(cublasLtHandle_t handle, int id, cublasLtMatmulAlgo_t& algorithm) const;
  // False if the algorithm cannot run this problem.
  [[nodiscard]] bool supports(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const;

  // Returns cuBLASLt's status.
  cublasStatus_t run(cublasLtHandle_t handle, const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm,
                     void* workspace, cudaStream_t stream) const;

  [[nodiscard]] const GemmProblem& problem() const noexcept { return problem_; }

 private:
  GemmProblem problem_;
  // Live as long as the process.
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatrixLayout_t addend_ = nullptr;
};

}  // namespace quench::cuda
