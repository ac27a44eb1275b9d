#include "core/ops/quantize/fake_quantize_float8.h"

#include "core/cpu/parallel.h"
#include "core/number/float8_decode.h"
#include "core/ops/quantize/quantize.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void fake_quantize_float8_cpu(const FakeQuantizeFloat8Args& args) {
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1);
  const bool to_bf16 = args.scale_dtype == DType::bf16;
  const Tensor most = args.amax.defined() ? args.amax : amax(args.x, Granularity::row);
  const float* of_rows = most.data<float>();
  const std::int64_t step = most.rank() == 2 ? 1 : 0;
  dispatch<float, bfloat16>(args.x.dtype(), "fake_quantize_float8", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    parallel_ranges(rows, args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float scale = float8_decode_scale(of_rows[row * step], to_bf16);
        for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
          out[i] = T(through_e4m3(static_cast<float>(x[i]), scale));
      }
    });
  });
}

QUENCH_CPU_KERNEL(fake_quantize_float8_slot, fake_quantize_float8_cpu);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
