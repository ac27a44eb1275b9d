#include "core/ops/experts/round_rows_mx.h"

#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/round_mx.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RoundRowsMxArgs> round_rows_mx_slot("round_rows_mx");

void round_rows_mx(const RoundRowsMxArgs& args) {
  constexpr std::string_view op = "round_rows_mx";
  const GroupRows& rows = args.rows;
  check_float_tensor(op, "x", rows.x, 2);
  check_contiguous(op, "x", rows.x);
  if (rows.pairs.defined()) {
    check_tensor(op, "pairs", rows.pairs, {-1}, DType::i32);
    check_contiguous(op, "pairs", rows.pairs);
    QUENCH_CHECK(rows.choices > 0, "{}: {} choices a token", op, rows.choices);
  }
  const Shape shape{rows.rows(), rows.x.size(1)};
  QUENCH_CHECK(shape[1] % kMxBlockSize == 0 && (!args.columnwise.defined() || shape[0] % kMxBlockSize == 0),
               "{}: {} rows of {}; the axes that blocks run along must be multiples of {}", op, shape[0],
               rows.x.describe(), kMxBlockSize);
  QUENCH_CHECK(args.rowwise.defined() || args.columnwise.defined(), "{}: no form is asked for", op);
  for (const auto& [name, out] :
       {std::pair<std::string_view, const Tensor*>{"rowwise", &args.rowwise}, {"columnwise", &args.columnwise}}) {
    if (!out->defined()) continue;
    check_tensor(op, name, *out, shape, rows.x.dtype());
    check_contiguous(op, name, *out);
  }
  check_same_device(op, {&rows.x, &rows.pairs, &args.rowwise, &args.columnwise});
  if (shape.numel() > 0) round_rows_mx_slot(rows.x.device().type, args);
}

namespace {

void round_rows_mx_host(const RoundRowsMxArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor x = args.rows.x;
  if (args.rows.pairs.defined()) {
    x = Tensor::empty({args.rows.rows(), x.size(1)}, x.dtype(), x.device());
    permute_tokens({.x = args.rows.x, .pairs = args.rows.pairs, .choices = args.rows.choices, .out = x});
  }
  // First, since rowwise may alias x.
  if (args.columnwise.defined())
    round_mx({.x = x, .out = args.columnwise, .mode = args.mode, .orientation = Orientation::transposed});
  if (args.rowwise.defined())
    round_mx({.x = x, .out = args.rowwise, .mode = args.mode, .orientation = Orientation::natural});
}

[[maybe_unused]] const bool round_rows_mx_registered = round_rows_mx_slot.fill(DeviceType::cpu, &round_rows_mx_host);

}  // namespace
}  // namespace quench
