// MXFP8 and NVFP4 GEMMs: cuBLASLt's block-scaled matmul, else bf16.

#include "core/ops/block_scaled_gemm.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/gemm/gemm_device.h"
#include "core/cuda/gemm/gemm_empty.h"
#include "core/cuda/gemm/scaled_gemm_scales.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/blocked_scales.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cuda {
namespace {

constexpr int kBlockScaledCapability = 100;
constexpr std::size_t kBlockScaledLibrary = 120800;
constexpr std::int64_t kProbeSize = 256;

// A problem of one tile, with addresses that the heuristic does not read.
bool probe(Device device, ElementFormat element) {
  GemmProblem p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldc = kProbeSize;
  p.a = p.b = payload_dtype(element);
  p.transpose_b = true;
  p.scales = element == ElementFormat::e2m1 ? GemmScales::nvfp4 : GemmScales::mxfp8;
  const DeviceGuard guard(device);
  const Tensor address = Tensor::empty({16}, DType::u8, device);
  return has_algorithm(p, {.scale_a = address.raw_data(), .scale_b = address.raw_data()}, device);
}

void block_scaled_support_cuda(const BlockScaledSupportArgs& args) {
  *args.supported = (args.element == ElementFormat::e4m3 || args.element == ElementFormat::e2m1) &&
                    compute_capability(args.device) >= kBlockScaledCapability && compiled_for(GemmScales::mxfp8) &&
                    cublaslt().get_version() >= kBlockScaledLibrary && probe(args.device, args.element);
}

bool run_block_scaled(const BlockScaledGemmArgs& args, Stream stream) {
  const GemmProblem problem = GemmProblem::of(args);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor scale_a = to_blocked(args.a.scales()), scale_b = to_blocked(args.b.scales());
  Tensor factors;
  if (problem.device_factors) factors = global_factors(args);
  return run_gemm(problem,
                  {.a = args.a.payload().raw_data(),
                   .b = args.b.payload().raw_data(),
                   .c = args.c.raw_data(),
                   .addend = args.c.raw_data(),
                   .scale_a = scale_a.raw_data(),
                   .scale_b = scale_b.raw_data(),
                   .beta = args.beta,
                   .device_factors = factors.defined() ? factors.data<float>() : nullptr},
                  stream);
}

void block_scaled_gemm_cuda(const BlockScaledGemmArgs& args) {
  const Stream stream = current_stream(args.c.device());
  const DeviceGuard guard(stream.device);
  if (args.a.shape()[1] == 0) return gemm_empty(args.c, args.beta);
  if (compute_capability(stream.device) >= kBlockScaledCapability && run_block_scaled(args, stream)) return;
  const MemoryScope scope(MemoryCategory::workspace);
  gemm({.a = dequantize(args.a, DType::bf16),
        .b = dequantize(args.b, DType::bf16),
        .c = args.c,
        .transpose_b = true,
        .beta = args.beta,
        .bias = {}});
}

[[maybe_unused]] const bool block_scaled_gemm_registered =
    block_scaled_gemm_slot.fill(DeviceType::cuda, &block_scaled_gemm_cuda);
[[maybe_unused]] const bool block_scaled_support_registered =
    block_scaled_support_slot.fill(DeviceType::cuda, &block_scaled_support_cuda);

}  // namespace
}  // namespace quench::cuda
