#include "core/cuda/gemm/gemm_tile_candidates.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace quench::cuda {
namespace {

using Tile = cublasLtMatmulTile_t;

// Rows x columns of the column-major result. Two warpgroups hold f32 accumulators, up to 176 registers per thread. Most
// tiles are cuBLAS 12.6's; before, the heuristic's proposals stand alone.
#if CUBLAS_VERSION >= 120600
constexpr std::array kTiles{CUBLASLT_MATMUL_TILE_256x160, CUBLASLT_MATMUL_TILE_256x168, CUBLASLT_MATMUL_TILE_256x176,
                            CUBLASLT_MATMUL_TILE_128x288, CUBLASLT_MATMUL_TILE_128x336, CUBLASLT_MATMUL_TILE_160x256,
                            CUBLASLT_MATMUL_TILE_176x256};
// Promoted accumulation: two accumulator sets.
constexpr std::array kTilesOfTwoSums{CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_128x176,
                                     CUBLASLT_MATMUL_TILE_160x128, CUBLASLT_MATMUL_TILE_176x128};
#else
constexpr std::array<Tile, 0> kTiles{};
constexpr std::array kTilesOfTwoSums{CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_160x128};
#endif
// Sharing one operand.
constexpr std::array kClusters{CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1};
// Undocumented, from the heuristic's proposals with large tiles; most tiles accept two.
constexpr std::array<std::uint32_t, 4> kCustomOptions{4, 5, 6, 7};

// cuBLASLt checks strides, not addresses.
constexpr std::uint8_t kAlignment = 16;

bool aligned(const GemmProblem& p) {
  return p.align_a >= kAlignment && p.align_b >= kAlignment && p.align_c >= kAlignment && p.align_addend >= kAlignment;
}

bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
bool set(cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
  return cublaslt().matmul_algo_config_set_attribute(&algorithm, attribute, &value, sizeof value) ==
         CUBLAS_STATUS_SUCCESS;
}

// The first proposal, reset except for its stage count.
std::optional<cublasLtMatmulAlgo_t> without_choices(const GemmPlan& plan, cublasLtHandle_t handle,
                                                    const cublasLtMatmulAlgo_t& proposal) {
  int id = 0;
  std::uint32_t stages = 0;
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
    std::size_t written = 0;
    return cublaslt().matmul_algo_config_get_attribute(&proposal, attribute, &value, sizeof value, &written) ==
           CUBLAS_STATUS_SUCCESS;
  };
  cublasLtMatmulAlgo_t algorithm;
  if (!get(CUBLASLT_ALGO_CONFIG_ID, id) || !get(CUBLASLT_ALGO_CONFIG_STAGES_ID, stages) ||
      !plan.init(handle, id, algorithm) || !set(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, stages))
    return std::nullopt;
  return algorithm;
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> gemm_tile_candidates(const GemmPlan& plan, cublasLtHandle_t handle,
                                                       std::span<const cublasLtMatmulAlgo_t> proposals) {
  std::vector<cublasLtMatmulAlgo_t> variations;
  const GemmProblem& problem = plan.problem();
  if (proposals.empty() || problem.flops() < kMinTileCandidateFlops || !aligned(problem) || are_blocked(problem.scales))
    return variations;
  const auto base = without_choices(plan, handle, proposals.front());
  if (!base) return variations;
  const bool two_sums = problem.scales != GemmScales::none && !problem.fast_accumulation;
  const std::span<const Tile> tiles = two_sums ? std::span<const Tile>(kTilesOfTwoSums) : std::span<const Tile>(kTiles);
  for (const Tile tile : tiles)
    for (const cublasLtClusterShape_t cluster : kClusters)
      for (const std::uint32_t custom : kCustomOptions) {
        cublasLtMatmulAlgo_t algorithm = *base;
        const bool made = set(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, static_cast<std::uint32_t>(tile)) &&
                          set(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<std::uint16_t>(cluster)) &&
                          set(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, custom);
        const auto is_this = [&algorithm](const cublasLtMatmulAlgo_t& other) { return same(algorithm, other); };
        if (made && plan.supports(handle, algorithm) && std::ranges::none_of(proposals, is_this))
          variations.push_back(algorithm);
      }
  return variations;
}

}  // namespace quench::cuda
