#pragma once
// Key of a GEMM's algorithm: shapes, layouts, dtypes, alignments.

#include <cstdint>
#include <functional>
#include <string>

#include "core/ops/gemm.h"
#include "core/ops/scaled_gemm.h"

namespace quench::cuda {

// Per operand (tensorwise), or per row of a and of b (rowwise).
enum class GemmScales : std::uint8_t { none, tensor, rows };

// Row-major C[M,N]. Leading dimensions in elements.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  std::int64_t ld_addend = 0;  // 0: in place
  DType a = DType::bf16, b = DType::bf16;
  DType result = DType::bf16;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  bool accumulate = false;  // beta != 0
  GemmScales scales = GemmScales::none;
  bool fast_accumulation = false;  // float8 only
  // Alignments of addresses in bytes, at most 16.
  std::uint8_t align_a = 16, align_b = 16, align_c = 16, align_addend = 16;

  // Throws invalid_argument for overlapping rows.
  static GemmProblem of(const GemmArgs& args);
  static GemmProblem of(const ScaledGemmArgs& args);
  // One line; cache key.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] double flops() const noexcept {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

struct GemmProblemHash {
  std::size_t operator()(const GemmProblem& p) const noexcept;
};

}  // namespace quench::cuda
