#include "core/ops/quantize/round_nvfp4.h"

#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RoundNvfp4Args> round_nvfp4_slot("round_nvfp4");

void round_nvfp4(const RoundNvfp4Args& args) {
  constexpr std::string_view op = "round_nvfp4";
  const Tensor& x = args.x;
  QUENCH_CHECK(x.defined() && is_f32_or_bf16(x.dtype()) && x.rank() >= 1, "{}: x is {}, expected f32 or bf16 [.., C]",
               op, x.describe());
  QUENCH_CHECK(x.size(-1) % kNvfp4BlockSize == 0, "{}: {} is not a multiple of {} along its blocks", op, x.describe(),
               kNvfp4BlockSize);
  check_contiguous(op, "x", x);
  check_tensor(op, "out", args.out, x.shape(), x.dtype());
  check_contiguous(op, "out", args.out);
  if (args.global_scale.defined()) check_tensor(op, "global_scale", args.global_scale, {1}, DType::f32);
  check_same_device(op, {&x, &args.global_scale, &args.out});
  if (x.numel() > 0) round_nvfp4_slot(x.device().type, args);
}

namespace {

void round_nvfp4_host(const RoundNvfp4Args& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor(args.out).copy_from(dequantize(quantize_nvfp4(args.x, args.global_scale), args.x.dtype()));
}

[[maybe_unused]] const bool round_nvfp4_registered = round_nvfp4_slot.fill(DeviceType::cpu, &round_nvfp4_host);

}  // namespace
}  // namespace quench
