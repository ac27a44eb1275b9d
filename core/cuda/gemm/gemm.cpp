// GEMM dispatch: GEMV for few rows, else cuBLASLt.

#include "core/ops/gemm.h"

#include "core/cuda/gemm/gemm_device.h"
#include "core/cuda/gemm/gemm_empty.h"
#include "core/cuda/gemm/gemv.h"
#include "core/device/kernel_slot.h"
#include "core/ops/elementwise.h"

namespace quench::cuda {
namespace {

void run(const GemmArgs& args, Stream stream) {
  const GemmProblem problem = GemmProblem::of(args);
  const GemmCall call{.a = args.a.raw_data(),
                      .b = args.b.raw_data(),
                      .c = args.c.raw_data(),
                      .addend = args.addend.defined() ? args.addend.raw_data() : args.c.raw_data(),
                      .bias = args.bias.defined() ? args.bias.raw_data() : nullptr,
                      .alpha = args.alpha,
                      .beta = args.beta};
  QUENCH_CHECK_AS(ErrorCode::unsupported, run_gemm(problem, call, stream), "gemm: cuBLASLt has no algorithm for {}",
                  problem.to_string());
}

void gemm_cuda(const GemmArgs& args) {
  const Stream stream = current_stream(args.c.device());
  const DeviceGuard guard(stream.device);
  const bool is_empty = args.a.size(args.transpose_a ? 0 : 1) == 0;
  if (args.addend.defined() && (is_empty || args.beta == 0.0f || is_gemv(args))) {
    GemmArgs in_place = args;
    in_place.addend = Tensor();
    if (args.beta != 0.0f) copy_rows({args.addend, args.c});
    return gemm_cuda(in_place);
  }
  if (is_empty) return gemm_empty(args.c, args.beta, args.bias);
  if (is_gemv(args)) return gemv(args);
  if (args.bias.defined() && args.c.dtype() != args.a.dtype()) {  // cuBLASLt: bias in the result's dtype
    GemmArgs product = args;
    product.bias = Tensor();
    run(product, stream);
    return gemm_empty(args.c, 1.0f, args.bias);
  }
  run(args, stream);
}

[[maybe_unused]] const bool registered = gemm_slot.fill(DeviceType::cuda, &gemm_cuda);

}  // namespace
}  // namespace quench::cuda
