#include "core/ops/dropout.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<DropoutArgs> dropout_slot("dropout");

void dropout(const DropoutArgs& args) {
  QUENCH_CHECK(args.x.defined() && is_f32_or_bf16(args.x.dtype()), "dropout: x is {}, expected f32 or bf16",
               args.x.describe());
  check_tensor("dropout", "out", args.out, args.x.shape(), args.x.dtype());
  check_contiguous("dropout", "x", args.x);
  check_contiguous("dropout", "out", args.out);
  check_same_device("dropout", {&args.x, &args.out});
  QUENCH_CHECK(args.probability >= 0 && args.probability < 1,
               "dropout: probability {}, expected at least 0 and below 1", args.probability);
  if (args.x.numel() > 0) dropout_slot(args.x.device().type, args);
}

}  // namespace quench
