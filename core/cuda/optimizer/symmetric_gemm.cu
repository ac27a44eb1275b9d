// Batched symmetric GEMM (Muon's Gram matrices): half of the tiles on SM90, else a full GEMM for each matrix.

#include "core/ops/optimizer/symmetric_gemm.h"

#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/ops/gemm.h"

namespace quench::cuda {
namespace {

template <class T>
__global__ void finish_kernel(T* c, std::int64_t n, std::int64_t elements, float diagonal, const float* scales) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t matrix = i / (n * n), at = i - matrix * n * n;
  const float value = to_float(c[i]) + (at / n == at % n ? diagonal : 0.0f);
  c[i] = from_float<T>(scales != nullptr ? value * scales[matrix] : value);
}

void symmetric_gemm_cuda(const SymmetricGemmArgs& args) {
  const OpLaunch launch("symmetric_gemm", {&args.a, &args.b, &args.c, &args.addend, &args.factors});
  if (run_kernel_family(KernelFamily::sm90_symmetric_gemm, args.c, [&] { return symmetric_gemm_sm90(launch, args); }))
    return;
  for (std::int64_t i = 0; i < args.c.size(0); ++i)
    gemm({.a = args.a.select(0, i),
          .b = args.b.select(0, i),
          .c = args.c.select(0, i),
          .transpose_a = args.transpose,
          .transpose_b = !args.transpose,
          .alpha = args.alpha,
          .beta = args.beta,
          .addend = args.beta != 0.0f ? args.addend.select(0, i) : Tensor()});
  if (args.diagonal == 0.0f && !args.factors.defined()) return;
  dispatch<float, bfloat16>(args.c.dtype(), "symmetric_gemm", [&]<class T>() {
    launch(finish_kernel<T>, static_cast<unsigned>((args.c.numel() + 255) / 256), 256, 0, args.c.data<T>(),
           args.c.size(1), args.c.numel(), args.diagonal,
           args.factors.defined() ? args.factors.data<float>() : nullptr);
  });
}

QUENCH_CUDA_KERNEL(symmetric_gemm_slot, symmetric_gemm_cuda);

}  // namespace
}  // namespace quench::cuda
