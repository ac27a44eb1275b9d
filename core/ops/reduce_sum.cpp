#include "core/ops/reduce_sum.h"

namespace quench {

constinit KernelSlot<ReduceSumArgs> reduce_sum_slot("reduce_sum");

void reduce_sum(const ReduceSumArgs& args) {
  check_tensor("reduce_sum", "x", args.x, {-1}, DType::f32);
  check_tensor("reduce_sum", "out", args.out, {1}, DType::f32);
  reduce_sum_slot(args.out.device().type, args);
}

}  // namespace quench
