#pragma once
// cuBLASLt descriptors of a GEMM problem.

#include <string>
#include <vector>

#include "core/cuda/common/cuda_error.h"
#include "core/cuda/gemm/cublaslt_library.h"
#include "core/cuda/gemm/gemm_problem.h"

namespace quench::cuda {

// NVIDIA's recommendation for Hopper.
inline constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;

// Addresses and factors.
struct GemmCall {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* addend = nullptr;  // beta term; c unless separate
  const void* bias = nullptr;
  // Dequantization scales, as in GemmProblem::scales: f32, or bytes of blocked scales.
  const void *scale_a = nullptr, *scale_b = nullptr;
  float alpha = 1.0f, beta = 0.0f;
  const float* device_factors = nullptr;  // alpha, beta; with GemmProblem::device_factors, in place of the above
};

// Whether the library's headers know the scales; without, no algorithm is found.
[[nodiscard]] bool compiled_for(GemmScales scales);

// Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: B is cuBLASLt's first operand.
class GemmPlan {
 public:
  explicit GemmPlan(const GemmProblem& problem);

  // Before candidates() and supports(): cuBLASLt checks scaled operands with scale addresses set.
  void bind_scales(const GemmCall& call) const;

  // Best first by cuBLASLt's estimate. Split-K reduces in f32 only; none in unsplit problems.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, int most) const;
  // Algorithm `id` with defaults. False if none.
  [[nodiscard]] bool init(cublasLtHandle_t handle, int id, cublasLtMatmulAlgo_t& algorithm) const;
  [[nodiscard]] bool supports(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const;

  cublasStatus_t run(cublasLtHandle_t handle, const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm,
                     void* workspace, cudaStream_t stream) const;

  // Descriptors as cuBLASLt holds them: "A 28 4096x512 ld 4096 T, B ... N, C ..., D ..., scales
  // 2 2, pointer mode 0": types, scale modes and pointer modes by number.
  [[nodiscard]] std::string describe() const;

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
