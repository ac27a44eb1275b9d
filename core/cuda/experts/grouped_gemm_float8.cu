// Grouped float8 GEMMs: wgmma where the device has it, else mma.sync.

#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/sm80/kernels.h"
#include "core/cuda/sm90/kernels.h"

namespace quench::cuda {
namespace {

// Rows of 16-byte pieces; stores of 8 elements.
void check_operands(std::string_view op, const Tensor& c, std::initializer_list<const Tensor*> codes) {
  for (const Tensor* t : codes)
    QUENCH_CHECK_AS(ErrorCode::unsupported, rows_are_wide<std::byte>(t->raw_data(), t->size(-1), t->size(-1)),
                    "{}: rows of {} are not multiples of 16", op, t->describe());
  QUENCH_CHECK_AS(ErrorCode::unsupported, c.size(-1) % 8 == 0, "{}: {} columns of c are not a multiple of 8", op,
                  c.size(-1));
}

// Without rows to sum, which has no valid tensor map: C = beta * C.
bool has_no_rows(std::string_view op, const OpLaunch& launch, const Tensor& codes, const Tensor& c, float beta) {
  if (codes.size(1) != 0) return false;
  QUENCH_CHECK_AS(ErrorCode::unsupported, beta == 0.0f || beta == 1.0f, "{}: no rows with beta {}", op, beta);
  if (beta == 0.0f) launch.check(cudaMemsetAsync(c.raw_data(), 0, c.nbytes(), launch.stream()));
  return true;
}

void grouped_float8_gemm_cuda(const GroupedFloat8GemmArgs& args) {
  constexpr std::string_view op = "grouped_float8_gemm";
  const Tensor &a = args.a.payload(), &b = args.b.payload();
  const OpLaunch launch(op, {&a, &b, &args.c, &args.ends});
  check_operands(op, args.c, {&a, &b});
  if (!run_kernel_family(KernelFamily::sm90_grouped_float8, args.c,
                         [&] { return grouped_float8_gemm_sm90(launch, args); }))
    grouped_float8_gemm_sm80(launch, args);
}

void grouped_float8_wgrad_cuda(const GroupedFloat8WgradArgs& args) {
  constexpr std::string_view op = "grouped_float8_wgrad";
  const Tensor &a = args.a.codes, &b = args.b.codes;
  const OpLaunch launch(op, {&a, &b, &args.c, &args.ends});
  if (has_no_rows(op, launch, a, args.c, args.beta)) return;
  check_operands(op, args.c, {&a, &b});
  if (!run_kernel_family(KernelFamily::sm90_grouped_float8, args.c,
                         [&] { return grouped_float8_wgrad_sm90(launch, args); }))
    grouped_float8_wgrad_sm80(launch, args);
}

void block_float8_gemm_cuda(const BlockFloat8GemmArgs& args) {
  constexpr std::string_view op = "block_float8_gemm";
  const Tensor &a = args.a.codes, &b = args.b.codes;
  const OpLaunch launch(op, {&a, &b, &args.a.scales, &args.b.scales, &args.c, &args.ends});
  check_operands(op, args.c, {&a, &b});
  if (!run_kernel_family(KernelFamily::sm90_block_float8, args.c, [&] { return block_float8_gemm_sm90(launch, args); }))
    block_float8_gemm_sm80(launch, args);
}

void block_float8_wgrad_cuda(const BlockFloat8WgradArgs& args) {
  constexpr std::string_view op = "block_float8_wgrad";
  const Tensor &a = args.a.codes, &b = args.b.codes;
  const OpLaunch launch(op, {&a, &b, &args.a.scales, &args.b.scales, &args.c, &args.ends});
  if (has_no_rows(op, launch, a, args.c, args.beta)) return;
  check_operands(op, args.c, {&a, &b});
  if (!run_kernel_family(KernelFamily::sm90_block_float8, args.c,
                         [&] { return block_float8_wgrad_sm90(launch, args); }))
    block_float8_wgrad_sm80(launch, args);
}

QUENCH_CUDA_KERNEL(grouped_float8_gemm_slot, grouped_float8_gemm_cuda);
QUENCH_CUDA_KERNEL(grouped_float8_wgrad_slot, grouped_float8_wgrad_cuda);
QUENCH_CUDA_KERNEL(block_float8_gemm_slot, block_float8_gemm_cuda);
QUENCH_CUDA_KERNEL(block_float8_wgrad_slot, block_float8_wgrad_cuda);

}  // namespace
}  // namespace quench::cuda
