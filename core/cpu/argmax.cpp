#include "core/ops/argmax.h"

#include <cmath>

namespace quench {
namespace {

template <class T>
void argmax_rows(const ArgmaxArgs& args) {
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = args.x.data<T>() + row * columns;
    std::int32_t best = -1, nonfinite = -1;
    for (std::int32_t i = 0; i < columns; ++i) {
      const auto value = static_cast<float>(x[i]);
      if (nonfinite < 0 && !std::isfinite(value)) nonfinite = i;
      if (!std::isnan(value) && (best < 0 || value > static_cast<float>(x[best]))) best = i;
    }
    args.index.data<std::int32_t>()[row] = best < 0 ? 0 : best;
    if (args.first_nonfinite.defined()) args.first_nonfinite.data<std::int32_t>()[row] = nonfinite;
  }
}

void argmax_cpu(const ArgmaxArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "argmax", [&]<class T>() { argmax_rows<T>(args); });
}

QUENCH_CPU_KERNEL(argmax_slot, argmax_cpu);

}  // namespace
}  // namespace quench
