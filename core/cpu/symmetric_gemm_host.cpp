// f32 symmetric GEMM: one GEMM per row panel with the columns up to its last row; elements left of the diagonal block
// are mirrored.

#include <algorithm>

#include "core/cpu/parallel.h"
#include "core/ops/gemm.h"
#include "core/ops/optimizer/symmetric_gemm.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kPanelRows = 256;

template <class T>
void store_panel(const SymmetricGemmArgs& args, std::int64_t matrix, std::int64_t first, const Tensor& panel) {
  const std::int64_t n = args.c.size(1), rows = panel.size(0), columns = panel.size(1);
  const auto* sums = panel.data<float>();
  const T* addend = args.beta != 0.0f ? args.addend.data<T>() + matrix * n * n : nullptr;
  T* c = args.c.data<T>() + matrix * n * n;
  const float factor = args.factors.defined() ? args.factors.data<float>()[matrix] : 1.0f;
  parallel_ranges(rows, panel.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = first + i;
      for (std::int64_t column = 0; column < columns; ++column) {
        float value = args.alpha * sums[i * columns + column];
        if (addend != nullptr) value += args.beta * static_cast<float>(addend[row * n + column]);
        if (row == column) value += args.diagonal;
        value *= factor;
        c[row * n + column] = T(value);
        if (column < first) c[column * n + row] = T(value);
      }
    }
  });
}

void symmetric_gemm_kernel(const SymmetricGemmArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t n = args.c.size(1);
  const int axis = args.transpose ? 1 : 0;
  for (std::int64_t matrix = 0; matrix < args.c.size(0); ++matrix) {
    const Tensor a = args.a.select(0, matrix), b = args.b.select(0, matrix);
    for (std::int64_t first = 0; first < n; first += kPanelRows) {
      const std::int64_t rows = std::min(kPanelRows, n - first), columns = first + rows;
      const Tensor panel = Tensor::empty({rows, columns}, DType::f32);
      gemm({.a = a.narrow(axis, first, rows),
            .b = b.narrow(axis, 0, columns),
            .c = panel,
            .transpose_a = args.transpose,
            .transpose_b = !args.transpose});
      dispatch<float, bfloat16>(args.c.dtype(), "symmetric_gemm",
                                [&]<class T>() { store_panel<T>(args, matrix, first, panel); });
    }
  }
}

QUENCH_CPU_KERNEL(symmetric_gemm_slot, symmetric_gemm_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
