#include "core/cuda/gemm/scaled_gemm_scales.h"

#include "core/cuda/common/launch.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kAlignment = 64;  // 256-byte aligned vectors

struct Scales {
  const float* encode;
  std::int64_t step;  // 0: tensorwise
  float* decode;
  std::int64_t count;
};

__global__ __launch_bounds__(kThreads) void reciprocal_kernel(Scales a, Scales b) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < a.count) a.decode[i] = 1.0f / a.encode[i * a.step];
  if (i < b.count) b.decode[i] = 1.0f / b.encode[i * b.step];
}

__global__ void global_factors_kernel(const float* a, const float* b, float beta, float* factors) {
  factors[0] = *a * *b;
  factors[1] = beta;
}

}  // namespace

Tensor global_factors(const BlockScaledGemmArgs& args) {
  const OpLaunch launch("block_scaled_gemm", {&args.a.global_scale(), &args.b.global_scale(), &args.c});
  const Tensor factors = Tensor::empty({2}, DType::f32, launch.device());
  launch(global_factors_kernel, 1, 1, 0, args.a.global_scale().data<float>(), args.b.global_scale().data<float>(),
         args.beta, factors.data<float>());
  return factors;
}

DecodeScales::DecodeScales(const ScaledGemmArgs& args, GemmScales mode) {
  const OpLaunch launch("scaled_gemm", {&args.a.payload(), &args.b.payload(), &args.c});
  const bool rows = mode == GemmScales::rows;
  const std::int64_t count_a = rows ? args.c.size(0) : 1, count_b = rows ? args.c.size(1) : 1;
  begin_b_ = (count_a + kAlignment - 1) / kAlignment * kAlignment;
  const MemoryScope scope(MemoryCategory::workspace);
  values_ = Tensor::empty({begin_b_ + count_b}, DType::f32, launch.device());
  auto* decode = values_.data<float>();
  const auto scales = [](const QuantTensor& x, float* to, std::int64_t count) {
    return Scales{x.scales().data<float>(), x.format().granularity == Granularity::row ? 1 : 0, to, count};
  };
  const std::int64_t most = count_a > count_b ? count_a : count_b;
  launch(reciprocal_kernel, dim3(static_cast<unsigned>((most + kThreads - 1) / kThreads)), kThreads, 0,
         scales(args.a, decode, count_a), scales(args.b, decode + begin_b_, count_b));
}

}  // namespace quench::cuda
