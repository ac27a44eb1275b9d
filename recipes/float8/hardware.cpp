#include "recipes/float8/hardware.h"

#include "core/ops/quantize.h"
#include "core/ops/scaled_gemm.h"

namespace quench::recipes {

void require_float8_products(Device device, Granularity scales) {
  if (device.is_cpu() || device.is_meta()) return;
  if (!has_backend(device.type) || backend(device.type).device_count() == 0) return;  // a plan for another machine
  // What refuses a small product would refuse the first step.
  const MemoryScope scope(MemoryCategory::workspace);
  const auto operand = [&](std::int64_t rows) {
    return quantize_float8(Tensor::zeros({rows, 96}, DType::bf16, device), {.granularity = scales});
  };
  gemm(ScaledGemmArgs{.a = operand(64), .b = operand(80), .c = Tensor::empty({64, 80}, DType::bf16, device)});
}

bool has_float8_products(Device device) {
  if (device.is_cpu()) return false;
  try {
    require_float8_products(device, Granularity::tensor);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return false;
  }
}

}  // namespace quench::recipes
