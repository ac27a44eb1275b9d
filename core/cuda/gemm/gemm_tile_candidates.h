#pragma once
// cuBLASLt algorithms for large GEMMs beyond the (at most eight) that its heuristic returns.
//
// A large GEMM is power-limited, and larger tiles read their operands less often: 256x160 to 256x176 and 128x288 to
// 128x336 tiles, seldom among the eight, win for some shapes by 1% to 3%. GemmAutotuner decides.

#include <span>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {

// Further algorithms for `plan`'s problem, unordered: tiles, clusters of two and custom options of the first proposal,
// as far as cuBLASLt accepts them. Empty below kMinTileCandidateFlops, for addresses that are not multiples of 16
// bytes, and without proposals.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> gemm_tile_candidates(const GemmPlan& plan, cublasLtHandle_t handle,
                                                                     std::span<const cublasLtMatmulAlgo_t> proposals);

inline constexpr double kMinTileCandidateFlops = 1e11;

}  // namespace quench::cuda
