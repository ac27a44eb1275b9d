#pragma once
// cuBLASLt algorithms for large GEMMs beyond the (at most eight) of its heuristic. Large GEMMs are power-limited, and
// larger tiles read less: 256x160 to 256x176 and 128x288 to 128x336 win by 1% to 3% for some shapes.

#include <span>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {

// Tiles, clusters of two and custom options of the first proposal that cuBLASLt accepts; unordered. Empty below
// kMinTileCandidateFlops, for unaligned addresses (16 bytes) and without proposals.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> gemm_tile_candidates(const GemmPlan& plan, cublasLtHandle_t handle,
                                                                     std::span<const cublasLtMatmulAlgo_t> proposals);

inline constexpr double kMinTileCandidateFlops = 1e11;

}  // namespace quench::cuda
