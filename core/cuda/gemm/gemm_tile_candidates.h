#pragma once
// Algorithms for large GEMMs beyond cuBLASLt's heuristic (at most eight). Large GEMMs are power-limited; larger tiles
// read less: 256x160 to 256x176 and 128x288 to 128x336 win 1% to 3% for some shapes.

#include <span>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {

// Accepted tiles, clusters of two and custom options of the first proposal; unordered. Empty below
// kMinTileCandidateFlops, for addresses not 16-byte aligned, without proposals.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> gemm_tile_candidates(const GemmPlan& plan, cublasLtHandle_t handle,
                                                                     std::span<const cublasLtMatmulAlgo_t> proposals);

inline constexpr double kMinTileCandidateFlops = 1e11;

}  // namespace quench::cuda
