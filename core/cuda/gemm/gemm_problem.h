#pragma once
// Key of a GEMM's algorithm: shapes, layouts, dtypes, alignments.

#include <cstdint>
#include <functional>
#include <string>

#include "core/ops/block_scaled_gemm.h"
#include "core/ops/gemm.h"
#include "core/ops/scaled_gemm.h"

namespace quench::cuda {

// Per operand (tensorwise), per row of a and of b (rowwise), or per block along K in 128 x 4 tiles
// (core/number/blocked_scale.h): blocks of 32 with E8M0 scales (MXFP8), of 16 with e4m3 scales (NVFP4).
enum class GemmScales : std::uint8_t { none, tensor, rows, mxfp8, nvfp4 };
[[nodiscard]] constexpr bool are_blocked(GemmScales scales) noexcept {
  return scales == GemmScales::mxfp8 || scales == GemmScales::nvfp4;
}

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
  bool device_factors = false;     // alpha and beta in device memory
  bool unsplit = false;            // each element in one pass over K, in its order: batch_invariant()
  // Alignments of addresses in bytes, at most 16.
  std::uint8_t align_a = 16, align_b = 16, align_c = 16, align_addend = 16;

  // Throws invalid_argument for overlapping rows.
  static GemmProblem of(const GemmArgs& args);
  static GemmProblem of(const ScaledGemmArgs& args);
  static GemmProblem of(const BlockScaledGemmArgs& args);
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
