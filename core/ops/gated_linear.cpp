
#include "core/ops/gated_linear.h"

#include "core/device/determinism.h"
#include "core/ops/gemm.h"
#include "core/ops/norm.h"
#include "core/ops/normed_linear.h"
#include "core/ops/swiglu.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<GatedLinearArgs> gated_linear_slot("gated_linear");
constinit KernelSlot<GatedPackedLinearArgs> gated_packed_linear_slot("gated_packed_linear");
constinit KernelSlot<NormedLinearArgs> normed_linear_slot("normed_linear");

namespace {

bool rows_are_aligned(const Tensor& matrix) {
  constexpr std::uintptr_t kBytes = 16;
  return reinterpret_cast<std::uintptr_t>(matrix.raw_data()) % kBytes == 0 &&
         matrix.size(1) * byte_size(matrix.dtype()) % kBytes == 0;
}

// 16-byte vectors; groups are whole words or whole vectors.
bool reads_whole_pieces(const Tensor& x, const PackedMatrix& weight) {
  const std::int64_t word = 32 / bit_width(weight.codes().dtype()), piece = 4 * word, group = weight.group_size();
  const auto aligned = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0; };
  return weight.columns() % piece == 0 && aligned(x) && aligned(weight.codes()) &&
         (weight.groups() == 1 || group % piece == 0 || (piece % group == 0 && group % word == 0));
}

void check_output(std::string_view op, const Tensor& x, std::int64_t weight_rows, const Tensor& y) {
  QUENCH_CHECK(weight_rows % 2 == 0, "{}: the weight has {} rows, an odd number", op, weight_rows);
  check_tensor(op, "y", y, {x.size(0), weight_rows / 2}, x.dtype());
  check_contiguous(op, "y", y);
}

template <class Multiply>
void in_two_steps(const Tensor& y, GatedActivation activation, const Multiply& multiply) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor gate_up = Tensor::empty({y.size(0), 2 * y.size(1)}, y.dtype(), y.device());
  multiply(gate_up);
  swiglu({.gate_up = gate_up, .out = y, .activation = activation});
}

}  // namespace

void gated_linear(const GatedLinearArgs& args) {
  constexpr std::string_view op = "gated_linear";
  const auto& [x, weight, y, bias, activation] = args;
  check_float_tensor(op, "x", x, 2);
  check_contiguous(op, "x", x);
  check_tensor(op, "weight", weight, {-1, x.size(1)}, x.dtype());
  check_contiguous(op, "weight", weight);
  check_output(op, x, weight.size(0), y);
  if (bias.defined()) check_tensor(op, "bias", bias, {weight.size(0)}, x.dtype());
  check_same_device(op, {&x, &weight, &y, &bias});
  if (y.numel() == 0) return;
  if (gated_linear_slot.filled(x.device().type) && x.size(0) == 1 && !batch_invariant() && rows_are_aligned(x) &&
      rows_are_aligned(weight))
    return gated_linear_slot(x.device().type, args);
  in_two_steps(y, activation, [&](const Tensor& gate_up) {
    gemm({.a = x, .b = weight, .c = gate_up, .transpose_b = true, .bias = bias});
  });
}

void gated_packed_linear(const GatedPackedLinearArgs& args) {
  constexpr std::string_view op = "gated_packed_linear";
  const auto& [x, weight, y, bias, activation] = args;
  QUENCH_CHECK(weight.defined(), "{}: no weight", op);
  check_float_tensor(op, "x", x, 2);
  check_contiguous(op, "x", x);
  QUENCH_CHECK(x.size(1) == weight.columns(), "{}: x is {}, weight {}", op, x.describe(), weight.describe());
  check_output(op, x, weight.rows(), y);
  if (bias.defined()) check_tensor(op, "bias", bias, {weight.rows()}, x.dtype());
  check_same_device(op, {&x, &weight.codes(), &y, &bias});
  if (y.numel() == 0) return;
  if (gated_packed_linear_slot.filled(x.device().type) && x.size(0) == 1 && !batch_invariant() &&
      reads_whole_pieces(x, weight))
    return gated_packed_linear_slot(x.device().type, args);
  in_two_steps(y, activation,
               [&](const Tensor& gate_up) { packed_linear({.x = x, .weight = weight, .y = gate_up, .bias = bias}); });
}

void normed_linear_apart(const NormedLinearArgs& args) {
  const auto& [x, norm, values, packed, y, bias, gated] = args;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor normed = Tensor::empty_like(x);
  rms_norm({.x = x,
            .residual = norm.residual,
            .weight = norm.weight,
            .eps = norm.eps,
            .y = normed,
            .sum = norm.sum,
            .rstd = Tensor::empty({x.size(0)}, DType::f32, x.device())});
  if (packed.defined() && gated) {
    gated_packed_linear({.x = normed, .weight = packed, .y = y, .bias = bias, .activation = *gated});
  } else if (packed.defined()) {
    packed_linear({.x = normed, .weight = packed, .y = y, .bias = bias});
  } else if (gated) {
    gated_linear({.x = normed, .weight = values, .y = y, .bias = bias, .activation = *gated});
  } else {
    gemm({.a = normed, .b = values, .c = y, .transpose_b = true, .bias = bias});
  }
}

void normed_linear(const NormedLinearArgs& args) {
  constexpr std::string_view op = "normed_linear";
  const auto& [x, norm, values, packed, y, bias, gated] = args;
  check_float_tensor(op, "x", x, 2);
  check_contiguous(op, "x", x);
  QUENCH_CHECK(values.defined() != packed.defined(), "{}: one weight, in values or packed", op);
  const Shape shape = packed.defined() ? packed.codes().shape() : values.shape();
  QUENCH_CHECK(shape.rank() == 2 && shape[1] == x.size(1) && (!gated || shape[0] % 2 == 0),
               "{}: x is {}, the weight {}{}", op, x.describe(), shape.to_string(), gated ? ", gated" : "");
  if (values.defined()) {
    check_tensor(op, "values", values, shape, x.dtype());
    check_contiguous(op, "values", values);
  }
  check_tensor(op, "residual", norm.residual, x.shape(), x.dtype());
  check_tensor(op, "sum", norm.sum, x.shape(), x.dtype());
  check_tensor(op, "norm.weight", norm.weight, {x.size(1)}, x.dtype());
  check_tensor(op, "y", y, {x.size(0), gated ? shape[0] / 2 : shape[0]}, x.dtype());
  check_contiguous(op, "y", y);
  check_contiguous(op, "residual", norm.residual);
  check_contiguous(op, "sum", norm.sum);
  check_contiguous(op, "norm.weight", norm.weight);
  QUENCH_CHECK(
      x.numel() == 0 || (norm.sum.raw_data() != x.raw_data() && norm.sum.raw_data() != norm.residual.raw_data()),
      "{}: sum has the memory of x or residual", op);
  if (bias.defined()) check_tensor(op, "bias", bias, {shape[0]}, x.dtype());
  check_same_device(op, {&x, &norm.residual, &norm.weight, &norm.sum, &values, &y, &bias});
  if (packed.defined()) check_same_device(op, {&x, &packed.codes()});
  if (y.numel() > 0 && x.size(0) == 1 && normed_linear_slot.filled(x.device().type) && !batch_invariant())
    return normed_linear_slot(x.device().type, args);
  normed_linear_apart(args);
}

}  // namespace quench
