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
  const auto& [x, a, parts, rows, y] = args;
  check_float_tensor(op, "x", x, 2);
  check_tensor(op, "y", y, {x.size(0), -1}, x.dtype());
  check_tensor(op, "a", a, {-1, -1, x.size(1)}, x.dtype());
  check_tensor(op, "rows", rows, {x.size(0)}, DType::i32);
  check_contiguous_rows(op, "x", x);
  check_contiguous_rows(op, "y", y);
  check_contiguous(op, "a", a);
  check_contiguous(op, "rows", rows);
  check_same_device(op, {&x, &a, &rows, &y});
  QUENCH_CHECK(parts.size() <= kMostRowAdapterParts, "{}: {} parts, expected at most {}", op, parts.size(),
               kMostRowAdapterParts);
  std::int64_t next = 0;
  for (const RowAdapterPart& part : parts) {
    check_tensor(op, "b", part.b, {a.size(0), -1, -1}, x.dtype());
    check_contiguous(op, "b", part.b);
    check_same_device(op, {&x, &part.b});
    const std::int64_t rank = part.b.size(1), columns = part.b.size(2);
    QUENCH_CHECK(part.column >= next && part.column + columns <= y.size(1) && part.rank_begin >= 0 &&
                     part.rank_begin + rank <= a.size(1),
                 "{}: a part of columns {} to {} of y and ranks {} to {} of a, where y is {}, a {} and the part before "
                 "it ends at column {}",
                 op, part.column, part.column + columns, part.rank_begin, part.rank_begin + rank, y.describe(),
                 a.describe(), next);
    next = part.column + columns;
  }
  if (x.device().is_cpu())
    for (std::int64_t m = 0; m < rows.numel(); ++m)
      QUENCH_CHECK(rows.data<std::int32_t>()[m] >= -1 && rows.data<std::int32_t>()[m] < a.size(0),
                   "{}: row {} has adapter {}, expected -1 to {}", op, m, rows.data<std::int32_t>()[m], a.size(0) - 1);
  if (x.size(0) > 0 && a.numel() > 0 && next > 0) row_adapters_slot(y.device().type, args);
}

}  // namespace quench
