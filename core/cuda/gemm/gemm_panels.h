#pragma once
// Reference rows of GEMMs in batch-invariant mode: panels of 128 rows by one algorithm, whatever the number of rows.
// Other algorithms are used where they give the same bits, which is nearly always: tensor cores add 16 products to a
// sum, and algorithms that do not split K add them in the same order.

#include <optional>

#include "core/cuda/gemm/gemm_plan.h"
#include "core/tensor/tensor.h"

namespace quench::cuda {

class GemmPanels {
 public:
  // The GEMM of a panel: problems that differ in rows, strides and alignment alone have the same.
  [[nodiscard]] static GemmProblem panel_of(const GemmProblem& problem);

  // For problems with this panel, without blocked scales and addend.
  GemmPanels(const GemmProblem& panel, const GemmCall& call, cublasLtHandle_t handle);

  // Whether panels() and matches() have an algorithm.
  [[nodiscard]] bool defined() const noexcept { return algorithm_.has_value(); }
  // The product. Asynchronous.
  void run(const GemmProblem& problem, const GemmCall& call, void* workspace, Stream stream) const;
  // Whether the first and last rows of call.c are those of run(). Waits for the stream.
  [[nodiscard]] bool matches(const GemmProblem& problem, const GemmCall& call, void* workspace, Stream stream) const;

 private:
  // `rows` rows of the product from row `first` on, in the panel, which is returned.
  [[nodiscard]] Tensor rows_of(const GemmProblem& problem, const GemmCall& call, std::int64_t first, std::int64_t rows,
                               void* workspace, Stream stream) const;

  GemmProblem panel_;
  GemmPlan plan_;
  cublasLtHandle_t handle_;
  std::optional<cublasLtMatmulAlgo_t> algorithm_;
};

}  // namespace quench::cuda
