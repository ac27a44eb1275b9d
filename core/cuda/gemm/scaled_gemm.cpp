// float8 GEMMs: cuBLASLt, else mma.sync. int8 GEMMs: wgmma on SM90, else mma.sync.

#include "core/ops/scaled_gemm.h"

#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/common/launch.h"
#include "core/cuda/gemm/gemm_device.h"
#include "core/cuda/gemm/gemm_empty.h"
#include "core/cuda/gemm/scaled_gemm_scales.h"
#include "core/cuda/sm80/kernels.h"
#include "core/cuda/sm90/kernels.h"

namespace quench::cuda {
namespace {

// Compute capabilities from which cuBLASLt multiplies float8 with tensorwise and with rowwise scales.
constexpr int kTensorwiseCapability = 89, kRowwiseCapability = 90;
constexpr std::int64_t kMultiple = 16;
constexpr std::uintptr_t kAlignment = 16;  // bytes

bool aligned(const Tensor& matrix, std::int64_t row_stride) {
  return reinterpret_cast<std::uintptr_t>(matrix.raw_data()) % kAlignment == 0 &&
         static_cast<std::uintptr_t>(row_stride * byte_size(matrix.dtype())) % kAlignment == 0;
}

void check_supported(const ScaledGemmArgs& args) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.shape()[1];
  QUENCH_CHECK_AS(ErrorCode::unsupported, n % kMultiple == 0 && k % kMultiple == 0,
                  "{} ([{}, {}] x [{}, {}] transposed): K {} and N {} must be multiples of {} on a GPU; exclude the "
                  "layer with recipe.filter or use recipe.emulate",
                  op_label(args), m, k, n, k, k, n, kMultiple);
  QUENCH_CHECK_AS(
      ErrorCode::unsupported,
      aligned(args.a.payload(), k) && aligned(args.b.payload(), k) && aligned(args.c, m > 1 ? args.c.stride(0) : 0),
      "{}: a {}, b {} and c {} with strides {} must begin at multiples of {} bytes, every row of c too", op_label(args),
      args.a.describe(), args.b.describe(), args.c.describe(), args.c.strides().to_string(), kAlignment);
}

void scaled_gemm_cuda(const ScaledGemmArgs& args) {
  const Stream stream = current_stream(args.c.device());
  const DeviceGuard guard(stream.device);
  if (args.a.shape()[1] == 0) return gemm_empty(args.c, args.beta);
  check_supported(args);
  if (args.a.format().element == ElementFormat::int8) {
    const OpLaunch launch("scaled_gemm", {&args.a.payload(), &args.b.payload(), &args.c});
    if (!run_kernel_family(KernelFamily::sm90_int8_gemm, args.c, [&] { return int8_gemm_sm90(launch, args); }))
      scaled_gemm_sm80(launch, args);
    return;
  }
  const GemmProblem problem = GemmProblem::of(args);
  if (compute_capability(stream.device) >=
          (problem.scales == GemmScales::rows ? kRowwiseCapability : kTensorwiseCapability) &&
      kernel_family_enabled(KernelFamily::cublaslt_float8)) {
    const DecodeScales scales(args, problem.scales);
    const GemmCall call{.a = args.a.payload().raw_data(),
                        .b = args.b.payload().raw_data(),
                        .c = args.c.raw_data(),
                        .addend = args.c.raw_data(),
                        .scale_a = scales.a(),
                        .scale_b = scales.b(),
                        .beta = args.beta};
    if (run_kernel_family(KernelFamily::cublaslt_float8, args.c, [&] { return run_gemm(problem, call, stream); }))
      return;
  }
  // An older device, or a row count without a cuBLASLt kernel, as in a last batch.
  scaled_gemm_sm80(OpLaunch("scaled_gemm", {&args.a.payload(), &args.b.payload(), &args.c}), args);
}

[[maybe_unused]] const bool registered = scaled_gemm_slot.fill(DeviceType::cuda, &scaled_gemm_cuda);

}  // namespace
}  // namespace quench::cuda
