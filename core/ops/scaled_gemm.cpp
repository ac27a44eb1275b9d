#include "core/ops/scaled_gemm.h"

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<ScaledGemmArgs> scaled_gemm_slot("scaled_gemm");

namespace {

void check_operand(std::string_view name, const QuantTensor& x, std::int64_t rows) {
  const QuantFormat& format = x.format();
  const bool is_int8 = format.element == ElementFormat::int8;
  const bool fits = x.defined() && x.shape().rank() == 2 && x.shape()[0] == rows && is_8_bit(format.element) &&
                    format == code_format(format.element, format.granularity) &&
                    (format.granularity == Granularity::row || (format.granularity == Granularity::tensor && !is_int8));
  QUENCH_CHECK(
      fits,
      "scaled gemm: {} is {}; expected {} rows of e4m3 or e5m2 with encode scales by tensor or row, or of int8 "
      "with decode scales by row, not transposed",
      name, x.describe(), rows);
}

// False if c is empty.
bool check(const ScaledGemmArgs& args) {
  const auto& [a, b, c, beta, fast] = args;
  QUENCH_CHECK(c.defined() && c.rank() == 2 && (c.dtype() == DType::bf16 || c.dtype() == DType::f32) &&
                   (c.size(1) <= 1 || c.stride(1) == 1),
               "scaled gemm: c is {}; expected a bf16 or f32 matrix with contiguous columns", c.describe());
  check_operand("a", a, c.size(0));
  check_operand("b", b, c.size(1));
  QUENCH_CHECK(a.shape()[1] == b.shape()[1], "scaled gemm: a {} and b {} differ in the contraction axis", a.describe(),
               b.describe());
  QUENCH_CHECK(a.format().element != ElementFormat::e5m2 || b.format().element != ElementFormat::e5m2,
               "scaled gemm: a {} and b {} are both e5m2, which no tensor core multiplies; e4m3 for one of them",
               a.describe(), b.describe());
  QUENCH_CHECK((a.format().element == ElementFormat::int8) == (b.format().element == ElementFormat::int8),
               "scaled gemm: a {} and b {}; int8 is multiplied by int8 alone", a.describe(), b.describe());
  check_same_device("scaled gemm", {&c, &a.payload(), &b.payload()});
  return c.numel() > 0;
}

}  // namespace

std::string op_label(const ScaledGemmArgs& args) {
  const auto operand = [](const QuantTensor& x) {
    return fmt::format("{} {}", to_string(x.format().element), to_string(x.format().granularity));
  };
  return fmt::format("{} gemm {}x{}x{} {} x {} -> {}{}",
                     args.a.format().element == ElementFormat::int8 ? "int8" : "float8", args.c.size(0), args.c.size(1),
                     args.a.shape()[1], operand(args.a), operand(args.b), to_string(args.c.dtype()),
                     args.beta != 0.0f ? " +=" : "");
}

void gemm(const ScaledGemmArgs& args) {
  if (check(args)) scaled_gemm_slot(args.c.device().type, args);
}

void gemm_emulated(const ScaledGemmArgs& args) {
  if (!check(args)) return;
  const MemoryScope scope(MemoryCategory::workspace);
  gemm_in_f32(dequantize(args.a, DType::f32), dequantize(args.b, DType::f32), args.c, args.beta);
}

void gemm_in_f32(const Tensor& a, const Tensor& b, const Tensor& c, float beta) {
  if (c.dtype() == DType::f32) {
    gemm({.a = a, .b = b, .c = c, .transpose_b = true, .beta = beta});
    return;
  }
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor sum = Tensor::empty(c.shape(), DType::f32, c.device());
  const Tensor rounded = c.is_contiguous() ? c : Tensor::empty_like(c);
  if (beta != 0.0f) {
    if (!c.is_contiguous()) copy_rows({c, rounded});
    cast({rounded, sum});
  }
  gemm({.a = a, .b = b, .c = sum, .transpose_b = true, .beta = beta});
  cast({sum, rounded});
  if (!c.is_contiguous()) copy_rows({rounded, c});
}

}  // namespace quench
