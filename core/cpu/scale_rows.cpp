#include "core/ops/scale_rows.h"

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void scale_rows_kernel(const ScaleRowsArgs& args) {
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  const float* factors = args.factors.data<float>();
  dispatch<float, bfloat16>(args.x.dtype(), "scale_rows", [&]<class T>() {
    T* x = args.x.data<T>();
    parallel_ranges(rows, args.x.numel(), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* values = x + row * width;
        const float factor = factors[row];
        for_vectors(width, [=](std::int64_t i, auto count) {
          store(values + i, factor != 0.0f ? load(values + i, count) * factor : F32{}, count);
        });
      }
    });
  });
}

QUENCH_CPU_KERNEL(scale_rows_slot, scale_rows_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
