#include "core/ops/argmax.h"

#include <limits>

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<ArgmaxArgs> argmax_slot("argmax");

void argmax(const ArgmaxArgs& args) {
  constexpr std::string_view op = "argmax";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous(op, "x", args.x);
  const std::int64_t rows = args.x.size(0), columns = args.x.size(1);
  QUENCH_CHECK(columns > 0 && columns <= std::numeric_limits<std::int32_t>::max(),
               "argmax: x is {}, expected between one and 2^31 - 1 columns", args.x.describe());
  check_tensor(op, "index", args.index, {rows}, DType::i32);
  check_contiguous(op, "index", args.index);
  if (args.first_nonfinite.defined()) {
    check_tensor(op, "first_nonfinite", args.first_nonfinite, {rows}, DType::i32);
    check_contiguous(op, "first_nonfinite", args.first_nonfinite);
  }
  check_same_device(op, {&args.x, &args.index, &args.first_nonfinite});
  if (rows > 0) argmax_slot(args.x.device().type, args);
}

}  // namespace quench
