#pragma once
// Float8 and (scaled_gemm_sm80) int8 GEMMs by mma.sync, for every device since SM80 (core/cuda/sm80/float8_mma.cuh).
// Rows of operands are multiples of 16 bytes. Sums over 128 of K are added to f32 accumulators; fast_accumulation is
// ignored.

#include "core/cuda/common/launch.h"
#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/ops/scaled_gemm.h"

namespace quench::cuda {

void scaled_gemm_sm80(const OpLaunch& launch, const ScaledGemmArgs& args);
void grouped_float8_gemm_sm80(const OpLaunch& launch, const GroupedFloat8GemmArgs& args);
void grouped_float8_wgrad_sm80(const OpLaunch& launch, const GroupedFloat8WgradArgs& args);
void block_float8_gemm_sm80(const OpLaunch& launch, const BlockFloat8GemmArgs& args);
void block_float8_wgrad_sm80(const OpLaunch& launch, const BlockFloat8WgradArgs& args);

}  // namespace quench::cuda
