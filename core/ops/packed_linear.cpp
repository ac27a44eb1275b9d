#include "core/ops/packed_linear.h"

#include <algorithm>

#include "core/ops/gemm.h"
#include "core/ops/op_checks.h"

namespace quench {

constinit KernelSlot<PackedLinearArgs> packed_linear_slot("packed_linear");
constinit KernelSlot<UnpackArgs> unpack_slot("unpack");

namespace {

// Bytes of unpacked weights that exist at once.
constexpr std::int64_t kUnpackedBytes = std::int64_t{64} << 20;

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
  if (x.size(0) <= kPackedRows) return packed_linear_slot(x.device().type, args);
  multiply_unpacked(args);
}

}  // namespace quench
