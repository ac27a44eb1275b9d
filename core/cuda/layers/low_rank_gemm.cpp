// GEMM with a LoRA update: one kernel on SM90, else, and in forward passes of batch-invariant mode, a sequence of
// GEMMs.

#include "core/ops/adapters/low_rank_gemm.h"

#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/sm90/kernels.h"
#include "core/device/determinism.h"

namespace quench::cuda {
namespace {

void low_rank_gemm_cuda(const LowRankGemmArgs& args) {
  const OpLaunch launch("low_rank_gemm",
                        {&args.a, &args.b, &args.u, &args.c, &args.gated, &args.gate_up, &args.dgate_up});
  const bool apart = batch_invariant() && args.transpose_b;
  if (apart || !run_kernel_family(KernelFamily::sm90_low_rank_gemm, args.dgate_up.defined() ? args.dgate_up : args.c,
                                  [&] { return low_rank_gemm_sm90(launch, args); }))
    low_rank_gemm_in_products(args);
}

QUENCH_CUDA_KERNEL(low_rank_gemm_slot, low_rank_gemm_cuda);

}  // namespace
}  // namespace quench::cuda
