#include "core/ops/reduce_sum.h"

namespace quench {
namespace {

void reduce_sum_cpu(const ReduceSumArgs& args) {
  const float* x = args.x.data<float>();
  const std::int64_t n = args.x.numel();
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  *args.out.data<float>() = static_cast<float>(sum * static_cast<double>(args.scale));
}

QUENCH_CPU_KERNEL(reduce_sum_slot, reduce_sum_cpu);

}  // namespace
}  // namespace quench
