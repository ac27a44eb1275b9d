#include "core/ops/adapters/row_adapters.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RowAdaptersArgs> row_adapters_slot("row_adapters");

std::string op_label(const RowAdaptersArgs& args) {
  return fmt::format("row adapters {}x{}x{}+{} of {} {}", args.x.size(0), args.y.size(1), args.x.size(1),
                     args.a.size(1), args.a.size(0), to_string(args.x.dtype()));
}

void row_adapters(const RowAdaptersArgs& args) {
  constexpr std::string_view op = "row_adapters";
  const auto& [x, a, b, rows, y] = args;
  check_float_tensor(op, "x", x, 2);
  check_tensor(op, "y", y, {x.size(0), -1}, x.dtype());
  check_tensor(op, "a", a, {-1, -1, x.size(1)}, x.dtype());
  check_tensor(op, "b", b, {a.size(0), a.size(1), y.size(1)}, x.dtype());
  check_tensor(op, "rows", rows, {x.size(0)}, DType::i32);
  check_contiguous_rows(op, "x", x);
  check_contiguous_rows(op, "y", y);
  for (const auto& [name, tensor] : {std::pair{"a", &a}, {"b", &b}, {"rows", &rows}})
    check_contiguous(op, name, *tensor);
  check_same_device(op, {&x, &a, &b, &rows, &y});
  if (x.device().is_cpu())
    for (std::int64_t m = 0; m < rows.numel(); ++m)
      QUENCH_CHECK(rows.data<std::int32_t>()[m] >= -1 && rows.data<std::int32_t>()[m] < a.size(0),
                   "{}: row {} has adapter {}, expected -1 to {}", op, m, rows.data<std::int32_t>()[m], a.size(0) - 1);
  if (y.numel() > 0 && a.numel() > 0) row_adapters_slot(y.device().type, args);
}

}  // namespace quench
