#pragma once
// SM90 GEMMs: TMA, wgmma and clusters, compiled for sm_90a alone.
//
// Each returns false, without a launch, for devices without that code, and for unsupported dtypes, shapes or
// alignments. A build without sm_90a links core/cuda/sm90/absent.cpp in their place.

#include "core/cuda/common/launch.h"
#include "core/ops/adapters/low_rank_gemm.h"
#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/optimizer/symmetric_gemm.h"
#include "core/ops/packed_linear.h"
#include "core/ops/scaled_gemm.h"

namespace quench::cuda {

[[nodiscard]] bool grouped_gemm_sm90(const OpLaunch& launch, const GroupedGemmArgs& args);
[[nodiscard]] bool grouped_wgrad_sm90(const OpLaunch& launch, const GroupedWgradArgs& args);

[[nodiscard]] bool grouped_float8_gemm_sm90(const OpLaunch& launch, const GroupedFloat8GemmArgs& args);
[[nodiscard]] bool grouped_float8_wgrad_sm90(const OpLaunch& launch, const GroupedFloat8WgradArgs& args);

[[nodiscard]] bool block_float8_gemm_sm90(const OpLaunch& launch, const BlockFloat8GemmArgs& args);
[[nodiscard]] bool block_float8_wgrad_sm90(const OpLaunch& launch, const BlockFloat8WgradArgs& args);

// int8 operands.
[[nodiscard]] bool int8_gemm_sm90(const OpLaunch& launch, const ScaledGemmArgs& args);

[[nodiscard]] bool low_rank_gemm_sm90(const OpLaunch& launch, const LowRankGemmArgs& args);

[[nodiscard]] bool symmetric_gemm_sm90(const OpLaunch& launch, const SymmetricGemmArgs& args);

// Operands as packed_gemm() (gemm/packed_gemm.h) takes them.
[[nodiscard]] bool packed_gemm_sm90(const OpLaunch& launch, const PackedLinearArgs& args);

}  // namespace quench::cuda
