#include "core/ops/block_scaled_gemm.h"

#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<BlockScaledGemmArgs> block_scaled_gemm_slot("block_scaled_gemm");
constinit KernelSlot<BlockScaledSupportArgs> block_scaled_support_slot("block_scaled_support");

namespace {

bool is_mxfp8(const QuantFormat& f) {
  return f.element == ElementFormat::e4m3 && f.block_size == kMxBlockSize && f.scale_dtype == DType::f8_e8m0;
}
bool is_nvfp4(const QuantFormat& f) {
  return f.element == ElementFormat::e2m1 && f.block_size == kNvfp4BlockSize && f.scale_dtype == DType::f8_e4m3;
}

void check_block_scaled(std::string_view name, const QuantTensor& x, std::int64_t rows) {
  const QuantFormat& format = x.format();
  QUENCH_CHECK(
      x.defined() && x.shape().rank() == 2 && x.shape()[0] == rows && format.granularity == Granularity::block &&
          format.orientation == Orientation::natural && (is_mxfp8(format) || is_nvfp4(format)),
      "block_scaled_gemm: {} is {}; expected {} rows of MXFP8 or NVFP4, not transposed", name, x.describe(), rows);
}

void block_scaled_gemm_host(const BlockScaledGemmArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  gemm_in_f32(dequantize(args.a, DType::f32), dequantize(args.b, DType::f32), args.c, args.beta);
}

[[maybe_unused]] const bool block_scaled_registered =
    block_scaled_gemm_slot.fill(DeviceType::cpu, &block_scaled_gemm_host);

}  // namespace

std::string op_label(const BlockScaledGemmArgs& args) {
  return fmt::format("{} gemm {}x{}x{} -> {}{}", is_nvfp4(args.a.format()) ? "nvfp4" : "mxfp8", args.c.size(0),
                     args.c.size(1), args.a.shape()[1], to_string(args.c.dtype()), args.beta != 0.0f ? " +=" : "");
}

void block_scaled_gemm(const BlockScaledGemmArgs& args) {
  const auto& [a, b, c, beta] = args;
  QUENCH_CHECK(c.defined() && c.rank() == 2 && is_f32_or_bf16(c.dtype()) && (c.size(1) <= 1 || c.stride(1) == 1),
               "block_scaled_gemm: c is {}; expected a bf16 or f32 matrix with contiguous columns", c.describe());
  check_block_scaled("a", a, c.size(0));
  check_block_scaled("b", b, c.size(1));
  QUENCH_CHECK(a.format() == b.format() && a.shape()[1] == b.shape()[1],
               "block_scaled_gemm: a {} and b {} differ in format or contraction axis", a.describe(), b.describe());
  QUENCH_CHECK(a.global_scale().defined() == b.global_scale().defined(),
               "block_scaled_gemm: one of a {} and b {} has a global scale", a.describe(), b.describe());
  check_same_device("block_scaled_gemm", {&c, &a.payload(), &b.payload()});
  if (c.numel() > 0) block_scaled_gemm_slot(c.device().type, args);
}

bool has_block_scaled_gemms(Device device, ElementFormat element) {
  bool supported = false;
  if (block_scaled_support_slot.filled(device.type))
    block_scaled_support_slot(device.type, {device, element, &supported});
  return supported;
}

}  // namespace quench
