#include "core/ops/quantize/round_mx.h"

#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RoundMxArgs> round_mx_slot("round_mx");

void round_mx(const RoundMxArgs& args) {
  constexpr std::string_view op = "round_mx";
  const Tensor& x = args.x;
  QUENCH_CHECK(x.defined() && is_f32_or_bf16(x.dtype()) && x.rank() >= 2,
               "{}: x is {}, expected f32 or bf16 [.., R, C]", op, x.describe());
  QUENCH_CHECK(args.element == ElementFormat::e4m3 || args.element == ElementFormat::e2m1,
               "{}: elements of {}, expected e4m3 or e2m1", op, to_string(args.element));
  const int axis = args.orientation == Orientation::natural ? -1 : -2;
  QUENCH_CHECK(x.size(axis) % kMxBlockSize == 0, "{}: {} is not a multiple of {} along its blocks", op, x.describe(),
               kMxBlockSize);
  check_contiguous(op, "x", x);
  check_tensor(op, "out", args.out, x.shape(), x.dtype());
  check_contiguous(op, "out", args.out);
  check_same_device(op, {&x, &args.out});
  if (x.numel() > 0) round_mx_slot(x.device().type, args);
}

namespace {

void round_mx_host(const RoundMxArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const QuantTensor codes =
      quantize_mx(args.x, {.element = args.element, .mode = args.mode, .orientation = args.orientation});
  Tensor(args.out).copy_from(dequantize(codes, args.x.dtype()));
}

[[maybe_unused]] const bool registered = round_mx_slot.fill(DeviceType::cpu, &round_mx_host);

}  // namespace
}  // namespace quench
