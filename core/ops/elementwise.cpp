#include "core/ops/elementwise.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<CastArgs> cast_slot("cast");
constinit KernelSlot<AddArgs> add_slot("add");
constinit KernelSlot<AccumulateArgs> accumulate_slot("accumulate");
constinit KernelSlot<ScaleArgs> scale_slot("scale");
constinit KernelSlot<ScaleRowsArgs> scale_rows_slot("scale_rows");
constinit KernelSlot<CopyRowsArgs> copy_rows_slot("copy_rows");
constinit KernelSlot<ColumnSumArgs> column_sum_slot("column_sum");

namespace {

void check_same_shape(std::string_view op, std::string_view name, const Tensor& tensor, const Tensor& like) {
  QUENCH_CHECK(tensor.defined() && tensor.shape() == like.shape(), "{}: {} is {}, expected the shape of {}", op, name,
               tensor.describe(), like.describe());
  check_contiguous(op, name, tensor);
}

}  // namespace

void cast(const CastArgs& args) {
  constexpr std::string_view op = "cast";
  check_same_shape(op, "from", args.from, args.from);
  check_same_shape(op, "to", args.to, args.from);
  for (const Tensor* t : {&args.from, &args.to})
    QUENCH_CHECK(is_f32_or_bf16(t->dtype()) || t->dtype() == DType::f16, "cast: {} is neither f32, bf16 nor f16",
                 t->describe());
  check_same_device(op, {&args.from, &args.to});
  if (args.from.numel() == 0) return;
  cast_slot(args.to.device().type, args);
}

void add(const AddArgs& args) {
  constexpr std::string_view op = "add";
  check_float_tensor(op, "a", args.a, args.a.rank());
  check_same_shape(op, "a", args.a, args.a);
  check_same_shape(op, "b", args.b, args.a);
  check_same_shape(op, "out", args.out, args.a);
  QUENCH_CHECK(args.b.dtype() == args.a.dtype() && args.out.dtype() == args.a.dtype(),
               "add: a is {}, b is {}, out is {}; the dtypes must agree", args.a.describe(), args.b.describe(),
               args.out.describe());
  check_same_device(op, {&args.a, &args.b, &args.out});
  if (args.out.numel() == 0) return;
  add_slot(args.out.device().type, args);
}

void accumulate(const AccumulateArgs& args) {
  constexpr std::string_view op = "accumulate";
  check_float_tensor(op, "x", args.x, args.x.rank());
  check_same_shape(op, "x", args.x, args.x);
  check_same_shape(op, "out", args.out, args.x);
  check_float_tensor(op, "out", args.out, args.x.rank());
  check_same_device(op, {&args.x, &args.out});
  if (args.out.numel() == 0) return;
  accumulate_slot(args.out.device().type, args);
}

void scale(const ScaleArgs& args) {
  constexpr std::string_view op = "scale";
  check_float_tensor(op, "x", args.x, args.x.rank());
  check_contiguous(op, "x", args.x);
  if (args.x.numel() == 0) return;
  scale_slot(args.x.device().type, args);
}

void scale_rows(const ScaleRowsArgs& args) {
  constexpr std::string_view op = "scale_rows";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous(op, "x", args.x);
  check_tensor(op, "factors", args.factors, {args.x.size(0)}, DType::f32);
  check_contiguous(op, "factors", args.factors);
  check_same_device(op, {&args.x, &args.factors});
  if (args.x.numel() == 0) return;
  scale_rows_slot(args.x.device().type, args);
}

void copy_rows(const CopyRowsArgs& args) {
  constexpr std::string_view op = "copy_rows";
  const int width = args.from.defined() ? bit_width(args.from.dtype()) : 0;
  QUENCH_CHECK(args.from.defined() && args.from.rank() == 2 && (width == 8 || width == 16 || width == 32),
               "copy_rows: from is {}, expected rank 2 and 8-, 16- or 32-bit elements", args.from.describe());
  check_tensor(op, "to", args.to, {args.rows.defined() ? -1 : args.from.size(0), args.from.size(1)}, args.from.dtype());
  check_contiguous_rows(op, "from", args.from);
  check_contiguous_rows(op, "to", args.to);
  if (args.rows.defined()) {
    check_tensor(op, "rows", args.rows, {args.from.size(0)}, DType::i32);
    check_contiguous(op, "rows", args.rows);
  }
  check_same_device(op, {&args.from, &args.to, &args.rows});
  if (args.from.numel() == 0) return;
  copy_rows_slot(args.to.device().type, args);
}

void column_sum(const ColumnSumArgs& args) {
  constexpr std::string_view op = "column_sum";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous_rows(op, "x", args.x);
  check_gradient_sum(op, "out", args.out, {args.x.size(1)}, args.x.dtype());
  check_same_device(op, {&args.x, &args.out});
  if (args.x.numel() == 0) {
    if (!args.accumulate) Tensor(args.out).zero();
    return;
  }
  column_sum_slot(args.out.device().type, args);
}

}  // namespace quench
