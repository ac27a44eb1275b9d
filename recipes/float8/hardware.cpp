#include "recipes/float8/hardware.h"

#include <array>

#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"

namespace quench::recipes {

void require_float8_gemms(Device device, Granularity scales) {
  if (device.is_cpu() || device.is_meta()) return;
  if (!has_backend(device.type) || backend(device.type).device_count() == 0) return;  // planning for another machine
  // Probe GEMM.
  const MemoryScope scope(MemoryCategory::workspace);
  const auto operand = [&](std::int64_t rows) {
    return quantize_float8(Tensor::zeros({rows, 96}, DType::bf16, device), {.granularity = scales});
  };
  gemm(ScaledGemmArgs{.a = operand(64), .b = operand(80), .c = Tensor::empty({64, 80}, DType::bf16, device)});
}

bool has_float8_gemms(Device device) {
  if (device.is_cpu()) return false;
  try {
    require_float8_gemms(device, Granularity::tensor);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return false;
  }
}

bool has_float8_experts(Device device) {
  if (device.is_cpu() || device.is_meta()) return true;
  // planning for another machine
  if (!has_backend(device.type) || backend(device.type).device_count() == 0) return true;
  const MemoryScope scope(MemoryCategory::workspace);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, DType::bf16, device); };
  const Tensor ends = Tensor::from_values<std::int32_t>({1}, std::array<std::int32_t, 1>{64}).to(device);
  try {
    grouped_gemm(GroupedFloat8GemmArgs{
        .a = quantize_group_rows({.x = zeros({64, 96}), .ends = ends, .pairs = {}}, true),
        .b = quantize_float8(zeros({1, 80, 96}), {.granularity = Granularity::row, .power_of_two_scale = true}),
        .ends = ends,
        .c = zeros({64, 80})});
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return false;
  }
}

void require_block_float8_gemms(Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  if (!has_backend(device.type) || backend(device.type).device_count() == 0) return;  // planning for another machine
  const MemoryScope scope(MemoryCategory::workspace);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, DType::bf16, device); };
  grouped_gemm(BlockFloat8GemmArgs{.a = quantize_block_lines(zeros({64, 96}), Orientation::natural),
                                   .b = quantize_block_squares(zeros({1, 80, 96}), Orientation::natural),
                                   .ends = {},
                                   .c = zeros({64, 80})});
}

}  // namespace quench::recipes
