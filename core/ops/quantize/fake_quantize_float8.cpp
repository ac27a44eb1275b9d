#include "core/ops/quantize/fake_quantize_float8.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<FakeQuantizeFloat8Args> fake_quantize_float8_slot("fake_quantize_float8");

void fake_quantize_float8(const FakeQuantizeFloat8Args& args) {
  constexpr std::string_view kOp = "fake_quantize_float8";
  check_float_tensor(kOp, "x", args.x, 2);
  check_contiguous(kOp, "x", args.x);
  check_tensor(kOp, "out", args.out, args.x.shape(), args.x.dtype());
  check_contiguous(kOp, "out", args.out);
  if (args.amax.defined()) {
    check_tensor(kOp, "amax", args.amax, args.amax.rank() == 2 ? Shape{args.x.size(0), 1} : Shape{}, DType::f32);
    check_contiguous(kOp, "amax", args.amax);
  }
  check_same_device(kOp, {&args.x, &args.amax, &args.out});
  QUENCH_CHECK(is_f32_or_bf16(args.scale_dtype), "{}: scales of {}, expected f32 or bf16", kOp,
               to_string(args.scale_dtype));
  if (args.x.numel() > 0) fake_quantize_float8_slot(args.x.device().type, args);
}

}  // namespace quench
