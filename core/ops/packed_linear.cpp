#include "core/ops/packed_linear.h"

#include <algorithm>
#include <vector>

#include "core/device/determinism.h"
#include "core/ops/gemm.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<PackedLinearArgs> packed_linear_slot("packed_linear");
constinit KernelSlot<PackedIntegerLinearArgs> packed_integer_linear_slot("packed_integer_linear");
constinit KernelSlot<UnpackArgs> unpack_slot("unpack");

namespace {

// Workspace for dequantized weights.
constexpr std::int64_t kUnpackedBytes = std::int64_t{64} << 20;
// More passes over the quantized values than this: dequantizing is faster.
constexpr std::int64_t kPackedPasses = 4;
// Largest K for which a lane's integer sum fits 32 bits.
constexpr std::int64_t kIntegerColumns = std::int64_t{1} << 16;
constexpr std::int64_t kIntegerRows = 4;  // rows per kernel iteration
// Divisors of 128 that are multiples of 8, or multiples of 128.
constexpr std::int64_t kIntegerGroup = 8, kIntegerBlock = 128;

void multiply_unpacked(const PackedLinearArgs& args) {
  const auto& [x, weight, y, bias] = args;
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t row_bytes = weight.columns() * byte_size(x.dtype());
  const std::int64_t step =
      std::clamp<std::int64_t>(kUnpackedBytes / std::max<std::int64_t>(row_bytes, 1), 1, weight.rows());
  const Tensor values = Tensor::empty({step, weight.columns()}, x.dtype(), x.device());
  for (std::int64_t row = 0; row < weight.rows(); row += step) {
    const std::int64_t count = std::min(step, weight.rows() - row);
    const Tensor piece = values.narrow(0, 0, count);
    unpack({weight.narrow_rows(row, count), piece});
    gemm({.a = x,
          .b = piece,
          .c = y.narrow(1, row, count),
          .transpose_b = true,
          .bias = bias.defined() ? bias.narrow(0, row, count) : bias});
  }
}

}  // namespace

void unpack(const UnpackArgs& args) {
  const auto& [weight, out] = args;
  QUENCH_CHECK(weight.defined() && out.defined() && (out.dtype() == DType::f32 || out.dtype() == DType::bf16),
               "unpack: weight {}, out {}; out must be f32 or bf16", weight.describe(), out.describe());
  check_tensor("unpack", "out", out, weight.codes().shape(), out.dtype());
  QUENCH_CHECK(out.is_contiguous() && out.device() == weight.device(), "unpack: weight {}, out {}", weight.describe(),
               out.describe());
  if (out.numel() > 0) unpack_slot(out.device().type, args);
}

bool has_integer_products(const PackedMatrix& weight) {
  const DType codes = weight.codes().dtype();
  const std::int64_t group = weight.group_size();
  const bool groups_fit =
      weight.groups() == 1 || group % kIntegerBlock == 0 || (kIntegerBlock % group == 0 && group % kIntegerGroup == 0);
  return (codes == DType::i4 || codes == DType::i8) && groups_fit && weight.columns() <= kIntegerColumns &&
         weight.rows() >= kIntegerRows && packed_integer_linear_slot.filled(weight.device().type);
}

void packed_integer_linear(const PackedIntegerLinearArgs& args) {
  constexpr std::string_view kOp = "packed_integer_linear";
  const auto& [x, scales, zero_points, weight, weight_sums, y, bias] = args;
  QUENCH_CHECK(weight.defined() && has_integer_products(weight), "{}: no kernel for weight {}", kOp, weight.describe());
  QUENCH_CHECK(x.defined() && x.rank() == 2 && x.size(1) == weight.columns() && x.is_contiguous() &&
                   x.dtype() == DType::i8 && x.size(0) <= kPackedRows,
               "{}: x is {}, weight {}; expected contiguous i8 [M,K] with at most {} rows", kOp, x.describe(),
               weight.describe(), kPackedRows);
  check_tensor(kOp, "scales", scales, {x.size(0), 1}, DType::f32);
  if (zero_points.defined()) check_tensor(kOp, "zero_points", zero_points, {x.size(0), 1}, DType::f32);
  check_tensor(kOp, "weight_sums", weight_sums, {weight.rows()}, DType::f32);
  QUENCH_CHECK(y.defined() && (y.dtype() == DType::bf16 || y.dtype() == DType::f32), "{}: y is {}", kOp, y.describe());
  check_tensor(kOp, "y", y, {x.size(0), weight.rows()}, y.dtype());
  QUENCH_CHECK(y.size(1) <= 1 || y.stride(1) == 1, "{}: the last axis of y must be contiguous", kOp);
  if (bias.defined()) check_tensor(kOp, "bias", bias, {weight.rows()}, y.dtype());
  check_same_device(kOp, {&x, &scales, &zero_points, &weight.codes(), &weight_sums, &y, &bias});
  if (y.numel() == 0) return;
  packed_integer_linear_slot(x.device().type, args);
}

Tensor packed_row_sums(const PackedMatrix& weight) {
  const std::vector<float> values(static_cast<std::size_t>(weight.columns()), 1.0f);
  const Tensor ones = Tensor::from_values<float>({1, weight.columns()}, values).to(weight.device());
  const Tensor sums = Tensor::empty({1, weight.rows()}, DType::f32, weight.device());
  packed_linear({.x = ones, .weight = weight, .y = sums, .bias = {}});
  return sums.view({weight.rows()});
}

void packed_linear(const PackedLinearArgs& args) {
  const auto& [x, weight, y, bias] = args;
  QUENCH_CHECK(weight.defined() && x.defined() && x.rank() == 2 && x.size(1) == weight.columns() && x.is_contiguous() &&
                   (x.dtype() == DType::f32 || x.dtype() == DType::bf16),
               "packed_linear: x is {}, weight {}; expected contiguous [M,K] in f32 or bf16", x.describe(),
               weight.describe());
  QUENCH_CHECK(y.defined() && (y.dtype() == x.dtype() || y.dtype() == DType::f32), "packed_linear: x is {}, y is {}",
               x.describe(), y.describe());
  check_tensor("packed_linear", "y", y, {x.size(0), weight.rows()}, y.dtype());
  QUENCH_CHECK(y.size(1) <= 1 || y.stride(1) == 1, "packed_linear: the last axis of y must be contiguous");
  if (bias.defined()) check_tensor("packed_linear", "bias", bias, {weight.rows()}, x.dtype());
  check_same_device("packed_linear", {&x, &weight.codes(), &y, &bias});
  if (y.numel() == 0) return;
  QUENCH_CHECK(weight.columns() > 0, "packed_linear: a weight without columns");
  if (batch_invariant()) return multiply_unpacked(args);
  if (x.size(0) <= packed_kernel_rows(x.device())) return packed_linear_slot(x.device().type, args);
  packed_linear_in_parts(args);
}

void packed_linear_in_parts(const PackedLinearArgs& args) {
  const auto& [x, weight, y, bias] = args;
  if (x.size(0) > kPackedPasses * kPackedRows) return multiply_unpacked(args);
  for (std::int64_t row = 0; row < x.size(0); row += kPackedRows) {
    const std::int64_t count = std::min(kPackedRows, x.size(0) - row);
    packed_linear_slot(x.device().type, {x.narrow(0, row, count), weight, y.narrow(0, row, count), bias});
  }
}

}  // namespace quench
