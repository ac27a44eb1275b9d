// Scaled GEMMs in f32: float8 by the emulation; int8 sums of codes, scaled afterwards.

#include "core/ops/scaled_gemm.h"

#include "core/ops/gemm.h"

namespace quench {
namespace {

// Smaller work is serial.
constexpr std::int64_t kParallelCodes = 16 * 1024;

Tensor code_values(const QuantTensor& x) {
  const Tensor values = Tensor::empty(x.shape(), DType::f32);
  const auto* codes = static_cast<const std::int8_t*>(x.payload().raw_data());
  float* to = values.data<float>();
  const std::int64_t count = x.shape().numel();
#pragma omp parallel for schedule(static) if (count >= kParallelCodes)
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(codes[i]);
  return values;
}

template <class C>
void store_scaled(const ScaledGemmArgs& args, const float* sums) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), stride = args.c.stride(0);
  const float *rows = args.a.scales().data<float>(), *columns = args.b.scales().data<float>();
  C* c = args.c.data<C>();
#pragma omp parallel for schedule(static) if (m * n >= kParallelCodes)
  for (std::int64_t i = 0; i < m; ++i) {
    C* to = c + i * stride;
    for (std::int64_t j = 0; j < n; ++j) {
      const float value = sums[i * n + j] * rows[i] * columns[j];
      to[j] = C(args.beta == 0.0f ? value : value + args.beta * static_cast<float>(to[j]));
    }
  }
}

void scaled_gemm_cpu(const ScaledGemmArgs& args) {
  if (args.a.format().element != ElementFormat::int8) return gemm_emulated(args);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor sums = Tensor::empty({args.c.size(0), args.c.size(1)}, DType::f32);
  gemm({.a = code_values(args.a), .b = code_values(args.b), .c = sums, .transpose_b = true});
  dispatch<float, bfloat16>(args.c.dtype(), "scaled_gemm",
                            [&]<class C>() { store_scaled<C>(args, sums.data<float>()); });
}

[[maybe_unused]] const bool scaled_gemm_registered = scaled_gemm_slot.fill(DeviceType::cpu, &scaled_gemm_cpu);

}  // namespace
}  // namespace quench
