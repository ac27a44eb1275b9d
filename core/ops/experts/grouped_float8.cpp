#include "core/ops/experts/grouped_float8.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<GroupRowsCastArgs> group_rows_cast_slot("group_rows_cast");
constinit KernelSlot<GroupColumnsCastArgs> group_columns_cast_slot("group_columns_cast");
constinit KernelSlot<GroupedFloat8GemmArgs> grouped_float8_gemm_slot("grouped_float8_gemm");
constinit KernelSlot<GroupedFloat8WgradArgs> grouped_float8_wgrad_slot("grouped_float8_wgrad");

namespace {

constexpr QuantFormat kRows{.element = ElementFormat::e4m3, .granularity = Granularity::row};

void check_rows(std::string_view op, const GroupRows& rows) {
  check_float_tensor(op, "x", rows.x, 2);
  check_contiguous(op, "x", rows.x);
  check_tensor(op, "ends", rows.ends, {-1}, DType::i32);
  if (rows.pairs.defined()) check_tensor(op, "pairs", rows.pairs, {-1}, DType::i32);
  QUENCH_CHECK(!rows.pairs.defined() || rows.choices > 0, "{}: {} choices a token", op, rows.choices);
  check_same_device(op, {&rows.x, &rows.ends, &rows.pairs});
}

void check_codes(std::string_view op, std::string_view name, const QuantTensor& x, int rank) {
  QUENCH_CHECK(x.defined() && x.shape().rank() == rank && x.format() == kRows,
               "{}: {} is {}; expected e4m3 by row of rank {}, not transposed", op, name, x.describe(), rank);
}

void check_columns(std::string_view op, std::string_view name, const GroupColumns& x, std::int64_t groups) {
  check_tensor(op, name, x.codes, {-1, -1}, DType::f8_e4m3);
  check_tensor(op, name, x.scales, {groups, x.codes.size(0)}, DType::f32);
  check_contiguous(op, name, x.codes);
  check_contiguous(op, name, x.scales);
}

}  // namespace

std::string op_label(const GroupedFloat8GemmArgs& args) {
  return fmt::format("grouped float8 gemm {}x({}x{})x{} {}", args.c.size(0), args.ends.size(0), args.c.size(1),
                     args.a.shape()[1], to_string(args.c.dtype()));
}

std::string op_label(const GroupedFloat8WgradArgs& args) {
  return fmt::format("grouped float8 wgrad ({}x{})x{}x{} {}{}", args.c.size(0), args.c.size(1), args.c.size(2),
                     args.a.codes.size(1), to_string(args.c.dtype()), args.beta != 0.0f ? " +=" : "");
}

QuantTensor quantize_group_rows(const GroupRows& rows, bool power_of_two, const Tensor& column_amax) {
  constexpr std::string_view op = "quantize_group_rows";
  check_rows(op, rows);
  if (column_amax.defined()) {
    check_tensor(op, "column_amax", column_amax, {rows.ends.size(0), rows.x.size(1)}, DType::f32);
    check_contiguous(op, "column_amax", column_amax);
  }
  const GroupRowsCastArgs args{
      rows, QuantTensor::empty(kRows, {rows.rows(), rows.x.size(1)}, rows.x.dtype(), rows.x.device()), column_amax,
      power_of_two};
  if (args.out.scales().numel() > 0) group_rows_cast_slot(rows.x.device().type, args);
  return args.out;
}

GroupColumns quantize_group_columns(const GroupRows& rows, const Tensor& scales) {
  constexpr std::string_view op = "quantize_group_columns";
  check_rows(op, rows);
  check_tensor(op, "scales", scales, {rows.ends.size(0), rows.x.size(1)}, DType::f32);
  check_contiguous(op, "scales", scales);
  const GroupColumnsCastArgs args{
      rows, {Tensor::empty({rows.x.size(1), rows.rows()}, DType::f8_e4m3, rows.x.device()), scales}};
  if (args.out.codes.numel() > 0) group_columns_cast_slot(rows.x.device().type, args);
  return args.out;
}

void grouped_gemm(const GroupedFloat8GemmArgs& args) {
  constexpr std::string_view op = "grouped_gemm";
  const auto& [a, b, ends, c, fast] = args;
  check_codes(op, "a", a, 2);
  check_codes(op, "b", b, 3);
  QUENCH_CHECK(a.shape()[1] == b.shape()[2], "{}: a {} and b {} differ in the contraction axis", op, a.describe(),
               b.describe());
  check_tensor(op, "ends", ends, {b.shape()[0]}, DType::i32);
  check_float_tensor(op, "c", c, 2);
  check_tensor(op, "c", c, {a.shape()[0], b.shape()[1]}, c.dtype());
  check_contiguous(op, "c", c);
  check_same_device(op, {&a.payload(), &b.payload(), &c, &ends});
  if (c.numel() == 0) return;
  grouped_float8_gemm_slot(c.device().type, args);
}

void grouped_wgrad(const GroupedFloat8WgradArgs& args) {
  constexpr std::string_view op = "grouped_wgrad";
  const auto& [a, b, ends, c, beta, fast] = args;
  check_tensor(op, "ends", ends, {-1}, DType::i32);
  check_columns(op, "a", a, ends.size(0));
  check_columns(op, "b", b, ends.size(0));
  QUENCH_CHECK(a.codes.size(1) == b.codes.size(1), "{}: a {} and b {} differ in their rows", op, a.codes.describe(),
               b.codes.describe());
  check_float_tensor(op, "c", c, 3);
  check_gradient_sum(op, "c", c, {ends.size(0), a.codes.size(0), b.codes.size(0)}, c.dtype());
  check_same_device(op, {&a.codes, &b.codes, &c, &ends});
  if (c.numel() == 0) return;
  grouped_float8_wgrad_slot(c.device().type, args);
}

}  // namespace quench
