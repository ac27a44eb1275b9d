#pragma once
// Algorithms for large matrix products that cuBLASLt has but does not propose.
//
// Its heuristics return at most eight. A large product runs at the GPU's power limit, where time goes by energy, and
// larger tiles read their operands less often: tiles of 256 by 160 to 176 and of 128 by 288 to 336 results, which are
// seldom among the eight, win for some shapes by a percent or three. Which, a contest finds out (gemm_contest.h).

#include <span>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {

// What can run `plan`'s problem beside `proposals`, in no order of merit: tiles, clusters of two and custom options of
// the algorithm that was proposed first, as far as cuBLASLt takes them. Empty for products under kMinVariedFlops, for
// addresses that are not multiples of 16 bytes, and where nothing was proposed.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> gemm_variations(const GemmPlan& plan, cublasLtHandle_t handle,
                                                                std::span<const cublasLtMatmulAlgo_t> proposals);

inline constexpr double kMinVariedFlops = 1e11;

}  // namespace quench::cuda
