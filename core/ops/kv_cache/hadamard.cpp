#include "core/ops/kv_cache/hadamard.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<HadamardArgs> hadamard_slot("hadamard");

void hadamard(const HadamardArgs& args) {
  check_float_tensor("hadamard", "x", args.x, 3);
  check_contiguous_rows("hadamard", "x", args.x);
  if (args.x.numel() > 0) hadamard_slot(args.x.device().type, args);
}

}  // namespace quench
